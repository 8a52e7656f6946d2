"""Other graphs that compute the same in less memory: layers in pieces, values computed again, exact algebra."""
