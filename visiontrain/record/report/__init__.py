"""Pages of one file: the report of a run, and what pages are made of. They read files of a run and load nothing from elsewhere."""
