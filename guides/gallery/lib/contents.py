"""The table of contents of the gallery."""

# By the address of a page: its title, and its entries, files beside this folder.
CONTENTS = {
    "wrong-labels": (
        "Which labels are wrong?",
        [
            "find_label_issues",
            "training_dynamics",
            "diagnose",
            "clean_labels",
            "report",
        ],
    ),
    "method": (
        "Which method, and will it run?",
        ["choose", "tune", "check", "estimate_cost", "doctor"],
    ),
    "sure": (
        "How sure may it be?",
        ["reliability", "risk_coverage", "uncertainty"],
    ),
    "confused": (
        "Which classes are confused?",
        ["covariance", "pairs", "explain"],
    ),
    "annotators": (
        "Annotators and transitions",
        ["annotators", "noise_transition"],
    ),
    "several": (
        "Several labels, maps, numbers",
        [
            "joint_labels",
            "find_multi_label_issues",
            "sample_segmentations",
            "predict_interval",
            "find_target_issues",
        ],
    ),
}
