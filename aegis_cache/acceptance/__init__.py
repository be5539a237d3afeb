"""Which generated images may enter a cache: close enough to private ones, and spread as they are."""
