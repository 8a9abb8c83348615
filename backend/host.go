package backend

// Hoster is implemented by a Comm that can name the nodes of other ranks.
type Hoster interface {
	// HostOf returns the name of the node that a rank runs on, or "" if the name is
	// unknown. It does not communicate. Several nodes may have the same name.
	HostOf(rank int) string
}
