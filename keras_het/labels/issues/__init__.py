"""Labels that a model disagrees with: their ranking, a page to review them, and corrections."""
