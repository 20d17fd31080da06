"""Experiments of Collier et al. (CVPR 2021) on a folder of images."""
