// Package cli gives the commands of this module one command-line style: help texts, flags, error
// messages, exit statuses, and shell completion, on top of spf13/cobra.
package cli
