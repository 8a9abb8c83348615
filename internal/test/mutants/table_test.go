package mutants

import "slices"

// table has all mutants. Those that put a fault of the past back are among them.
var table = slices.Concat(linkMutants, membershipMutants, engineMutants, boardMutants, flightMutants, requestMutants, windowMutants, localMutants, mpiMutants, rejoinMutants)
