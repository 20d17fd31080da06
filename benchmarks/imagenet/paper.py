"""What the paper reports: top-1 accuracy in per cent, or global average precision (gAP).

Source: Collier, Mustafa, Kokiopoulou, Jenatton and Berent, CVPR 2021, Tables 1, 3, 8, 9, 10 and 11.
"""

TITLES = {
    "table1": "heads, a short and a long training",
    "table3": "sigmoids, and their temperature",
    "table8": "Taylor expansion in place of samples",
    "table9": "samples",
    "table10": "equal numbers of parameters",
    "table11": "softmax or sigmoid",
}

REPORTED = {  # by table and row; the rows are those of the sweeps and of the tables in small
    "table1": {
        "Dense": "76.5 at 90 epochs, 76.7 at 270; NLL 1.08",
        "diagonal": "78.3, 78.7; NLL 0.95",
        "full": "78.5, 79.3; NLL 0.92",
    },
    "table3": {
        "Dense, sigmoid": "gAP 45.9 (ImageNet-21k), 63.1 (JFT)",
        "diagonal, sigmoid": "45.9, 63.1 at temperature 1; 46.8, 64.1 at 0.15",
        "parameter-efficient, sigmoid": "47.0, 64.7 at 0.15",
    },
    "table8": {"Dense": "76.7", "diagonal": "78.7", "diagonal, Taylor": "78.2"},
    "table9": {
        "full, 1 sample": "78.5",
        "full, 10 samples": "78.6",
        "full, 100 samples": "79.1",
        "full, 1000 samples": "79.2",
    },
    "table10": {"Dense": "76.7", "Dense, equal parameters": "77.1", "full": "79.3"},
    "table11": {"Dense": "76.7", "Dense, sigmoid": "78.2", "full": "79.3", "full, sigmoid": "79.35"},
}
