package wire

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
)

// ThisNode returns the node of this process: a hash of the kernel's boot ID, the user, and the namespaces
// that processes need in common to find each other and share memory: those of processes, users, and
// networks. It is empty where these are not known, as on all systems but Linux.
func ThisNode() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(strings.TrimSpace(string(boot))) == 0 {
		return ""
	}
	text := fmt.Sprintf("cohort node %s %d", strings.TrimSpace(string(boot)), os.Geteuid())
	for _, name := range []string{"pid", "user", "net"} {
		space, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			return ""
		}
		text += " " + space
	}
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%x", sum[:16])
}
