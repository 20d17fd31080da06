"""The atlas of floors: tasks whose best possible figures are known, and how far each head is from them."""
