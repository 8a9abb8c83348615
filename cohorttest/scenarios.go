package cohorttest

import "sync"

// all returns the scenarios. Each family has a file with the bodies.
var all = sync.OnceValue(func() []scenario {
	some := func(n int) bool { return n == 3 || n == 5 || n == 8 }
	all := []scenario{
		{name: "p2p/lengths", body: p2pLengths},
		{name: "p2p/types", few: true, body: p2pTypes},
		{name: "p2p/limits", few: true, body: p2pLimits},
		{name: "p2p/order", body: p2pOrder},
		{name: "p2p/synchronous", body: synchronous},
		{name: "p2p/truncation", few: true, body: truncation},
		{name: "p2p/element-types", few: true, body: elementTypes},
		{name: "p2p/in-place", body: p2pInPlace},
		{name: "p2p/proc-null", body: procNull},
		{name: "p2p/goroutines", body: goroutines},
		{name: "p2p/large", few: true, body: p2pLarge},

		{name: "probe/iprobe", body: iprobe},
		{name: "probe/matched", body: matched},

		{name: "views/messages", few: true, body: viewMessages},
		{name: "views/allocations", few: true, sizes: atLeast(2), body: viewAllocations},
		{name: "views/alltoall", body: viewAlltoall},
		{name: "views/alltoall-contiguous", body: contiguousAlltoall},
		{name: "views/wrong", body: wrongViews},
		{name: "views/cut", few: true, body: viewCut},

		{name: "recorder/waiting", few: true, sizes: atLeast(2), body: recordedWaits},

		{name: "requests/sets", body: requestSets},
		{name: "requests/cancel", body: cancel},
		{name: "requests/errors-in-sets", body: errorsInSets},
		{name: "requests/done", body: requestsDone},
		{name: "requests/forgotten", alone: true, body: forgotten},
		{name: "requests/not-waited-for", alone: true, body: notWaitedFor},
		{name: "requests/not-waited-for-derived", alone: true, body: notWaitedForDerived},

		{name: "Barrier", body: barriers},
		{name: "collectives/nil", body: nilBuffers},
		{name: "collectives/mixed-in-place", sizes: atLeast(2), body: mixedInPlace},

		{name: "operations/integers", body: integerOps},
		{name: "operations/floats", body: floatOps},
		{name: "operations/half", body: halfOps},
		{name: "operations/special-floats", body: specialFloats},
		{name: "operations/bools", body: boolOps},
		{name: "operations/locations", body: locationOps},
		{name: "operations/user", body: userOps},
		{name: "operations/user-fails", body: failingOps},
		{name: "operations/scalars", body: scalars},

		{name: "sequence/back-to-back", body: backToBack},
		{name: "sequence/outstanding", body: outstanding},
		{name: "sequence/persistent-set", body: persistentSet},
		{name: "sequence/with-posted-receive", body: besideMessages},
		{name: "sequence/inside-blocking-calls", sizes: atLeast(2), body: insideBlockingCalls},
		{name: "sequence/goroutines", body: collectiveGoroutines},

		{name: bitsScenario, body: bits},

		{name: "neighbors/sub", body: subgrids},
		{name: "neighbors/reorder", body: reordered},
		{name: "neighbors/left-early", few: true, sizes: atLeast(3), body: neighborLeft(false)},
		{name: "neighbors/many-edges", few: true, body: manyNeighbors},
		{name: "mismatch/neighbors-left", few: true, sizes: atLeast(3), body: neighborLeft(true)},
		{name: "arguments/graph", sizes: atLeast(2), body: graphArguments},
		{name: "mismatch/neighbors", sizes: atLeast(2), body: mismatchedNeighbors},
		{name: "mismatch/neighbor-lengths-of-others", sizes: atLeast(3), body: neighborLengthsOfOthers},

		{name: "communicators/dup", body: dup},
		{name: "communicators/split", body: split},
		{name: "communicators/shared", body: splitShared},
		{name: "communicators/group", body: createGroup},
		{name: "communicators/many", body: manyComms},
		{name: "communicators/close", body: closing},
		{name: "communicators/close-inside", sizes: atLeast(2), body: closingInside},

		{name: "arguments/p2p", body: p2pArguments},
		{name: "arguments/collectives", body: collectiveArguments},
		{name: "arguments/types", body: typeArguments},

		{name: "mismatch/collectives", sizes: atLeast(2), body: mismatches},
		{name: "mismatch/counts", sizes: atLeast(2), body: mismatchedCounts},
		{name: "mismatch/programs", sizes: atLeast(2), body: mismatchedPrograms},
		{name: "mismatch/wrong-arguments-afterwards", sizes: atLeast(2), body: wrongOnBroken},

		{name: "windows/region", body: regions},
		{name: "windows/close-region", body: closeRegion},
		{name: "windows/room", body: windowRoom},
		{name: "windows/one-copy", few: true, sizes: func(n int) bool { return n == 4 || n == 5 }, body: oneCopy},
		{name: "mismatch/windows", sizes: atLeast(2), body: mismatchedWindows},
		{name: "onesided/put-get", few: true, body: windowPutGet},
		{name: "onesided/random", body: windowRandom},
		{name: "onesided/messages", body: windowMessages},
		{name: "onesided/splits", body: windowSplits},
		{name: "onesided/reductions", few: true, body: windowReductions},
		{name: "onesided/operations", few: true, body: windowOperations},
		{name: "onesided/no-rank", body: windowNoRank},
		{name: "onesided/own-memory", body: windowOwnMemory},
		{name: "onesided/tickets", body: windowTickets},
		{name: "onesided/compare-and-swap", body: windowCompareAndSwap},
		{name: "onesided/neighbors", body: windowNeighbors},
		{name: "onesided/progress", sizes: atLeast(2), body: windowProgress},
		{name: "onesided/requests", body: windowRequests},
		{name: "onesided/deadlines", body: windowDeadlines},
		{name: "onesided/locks", body: windowLocks},
		{name: "onesided/lock-all", body: lockedAll},
		{name: "onesided/lock-deadline", few: true, sizes: atLeast(2), body: lockDeadline},
		{name: "onesided/lock-misuse", body: lockMisuse},
		{name: "onesided/arguments", body: windowArguments},
		{name: "onesided/close", body: windowClose},
		{name: "onesided/close-with-lock", body: closeWithLock},
		{name: "onesided/close-waiting", sizes: atLeast(2), body: closeWaiting},
		{name: "onesided/close-in-use", body: windowCloseInUse},
		{name: "onesided/left-open", body: windowsLeftOpen},
		{name: "onesided/allocations", sizes: func(n int) bool { return n <= 2 }, body: windowAllocations},

		{name: "files/rows", few: true, body: fileRows},
		{name: "files/open", sizes: atLeast(2), body: fileOpen},

		{name: "exact/sums", body: exactSums},
		{name: "exact/lengths", sizes: atLeast(2), body: exactLengths},

		{name: "limits/receive", body: receiveDeadline},
		{name: "limits/send", body: sendDeadline},
		{name: "limits/withdrawn", body: withdrawn},
		{name: "limits/requests", body: requestDeadline},
		{name: "limits/collective", sizes: atLeast(2), body: collectiveDeadline},
		{name: "limits/user-operation", sizes: atLeast(2), body: lateOps},
		{name: "limits/one-rank", sizes: atLeast(2), body: lateOnOneRank},
		{name: "limits/cancel", sizes: atLeast(2), body: collectiveCancel},
		{name: "limits/busy", sizes: atLeast(2), body: busy},

		{name: "faults/abort", sizes: atLeast(2), alone: true, lost: firstRank, status: abortStatus, body: abort},
		{name: "faults/dead-onesided-origin", sizes: atLeast(2), alone: true, lost: lastRank, body: deadOrigin},
		{name: "faults/dead-with-forgotten", sizes: atLeast(2), alone: true, lost: lastRank, body: deadWithForgotten},
		{name: "faults/left-early", sizes: atLeast(2), alone: true, body: leftEarly},
		{name: "faults/stopped", sizes: atLeast(2), few: true, body: stopped},
		{name: "faults/computing", sizes: atLeast(2), few: true, body: computing},

		{name: "recover/agree", body: agreeWhole},
		{name: "recover/shrink-whole", body: func(r *Rank) {
			d := must(r.Comm.Shrink())
			works(r, d, without(r, nobody))
			r.OK(d.Close())
		}},
		{name: "recover/revoke", sizes: atLeast(2), body: revoke},
		{name: "recover/deadline", sizes: atLeast(2), body: agreeDeadline},
		{name: "recover/closed", sizes: atLeast(2), body: agreeClosed},
		{name: "recover/left", sizes: atLeast(2), alone: true, body: shrinkLeft},
		{name: "recover/leaving", sizes: some, alone: true, body: leaving},
		{name: "recover/dead", sizes: atLeast(2), alone: true, lost: lastRank, body: func(r *Rank) { shrinkDead(r, lastRank, r.Size-1) }},
		{name: "recover/dead-first-rank", sizes: some, alone: true, lost: firstRank, body: func(r *Rank) { shrinkDead(r, firstRank, 0) }},
		{name: "recover/dead-in-derived", sizes: some, alone: true, lost: lastRank, body: shrinkDerived},
		{name: "recover/random", sizes: atLeast(2), alone: true, lost: isVictim, body: randomLosses},
	}
	for _, c := range collectives() {
		all = append(all, scenario{name: c.name, body: c.run})
	}
	for i, f := range neighborFamilies[int32](nil) { // for the names
		all = append(all, scenario{name: f.name, body: func(r *Rank) { neighborMatrix(r, i) }})
	}
	return append(all, losses()...)
})

func find(name string) (scenario, bool) {
	for _, s := range all() {
		if s.name == name {
			return s, true
		}
	}
	return scenario{}, false
}
