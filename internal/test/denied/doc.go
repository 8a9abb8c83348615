// Package denied takes system calls away from a process, as a container's runtime does.
package denied
