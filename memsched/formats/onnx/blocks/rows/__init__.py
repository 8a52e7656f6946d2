"""Images of open height, computed by rows: loops whose bodies compute some rows of what is kept, with halos."""
