package backend

// Hoster is implemented by a Comm that knows the names of nodes other than the
// caller's.
type Hoster interface {
	// HostOf returns the name of the node that a rank runs on, "" if it is not
	// known. It does not communicate. Several nodes may have the same name.
	HostOf(rank int) string
}
