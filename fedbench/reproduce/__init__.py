"""``fedbench reproduce``: the runs behind the papers' tables and figures, planned, timed and carried out."""
