"""Function secret sharing: keys that share a function among servers. No I/O.

A client that holds α gives each server one key; any server can then evaluate its share of a
function of α at any public point, and shares add up in the ring. Start at `comparison`, which
answers "how many α are ≤ t?" for any number of servers:

    comparison    one entry for all sizes; picks a construction by servers and bits
    dcf, dpf      two servers: comparison and point functions, from one tree of seeds
    interval      counts in [l, r], from comparison keys
    seed_table    m servers, small domains
    square_root   three servers, larger domains
    verified      two servers, who check that a key is one step of weight one

    shape         how a tree key is laid out, and why it has that size
    storage       keys as rows or level-major segments, for memory maps
    tree          gen and evaluation of tree keys; runs `twin` or the native loops
    hash, prg     the two ways a seed is stretched, and what each assumes
    native        which implementation runs

Randomness is always an argument. Only `verified` defends against a client that shares another
function than it should; aggregators say what that means for them.
"""
