"""The experiments of Collier et al. (CVPR 2021): recipes for a folder of images, and their tables in small."""
