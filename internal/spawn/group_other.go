//go:build unix && !linux

package spawn

func liveGroups() (groups map[int]bool, ok bool) { return nil, false }

func isStopped(pid int) bool { return false }
