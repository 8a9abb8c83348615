package main

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cohort-hpc/cohort/internal/spawn"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// tcpCoordinator makes this process the coordinator of the ranks of a job on this machine, on the
// loopback interface. It adds to config the job's name and the variables with the address and the path
// of the secret, a file that only this user can read. end undoes all of it when the job is over.
func tcpCoordinator(config *spawn.Config, keeper *spawn.Keeper) (end func(), err error) {
	fail := func(err error) (func(), error) { return nil, fmt.Errorf("--backend tcp: %w", err) }
	folder, err := os.MkdirTemp("", "cohort-run-*")
	if err != nil {
		return fail(err)
	}
	keeper.Folder(folder)
	secret, path := wire.NewSecret(), filepath.Join(folder, "secret")
	config.Job = rand.Text()
	id := &wire.Identity{Job: config.Job, Secret: secret, Rank: wire.Launcher, Size: config.Ranks, Coordinator: true}
	if cert := os.Getenv("COHORT_TCP_TLS_CERT"); cert != "" { // the ranks use TLS too, and refuse a coordinator without it
		name := cmp.Or(os.Getenv("COHORT_TCP_TLS_NAME"), "cohort")
		id.TLS, err = wire.LoadTLS(cert, os.Getenv("COHORT_TCP_TLS_KEY"), os.Getenv("COHORT_TCP_TLS_CA"), name)
	}
	if err == nil {
		err = secret.WriteFile(path)
	}
	var door *wire.Listener
	if err == nil {
		door, err = loopback(id)
	}
	if err != nil {
		os.RemoveAll(folder)
		return fail(err)
	}
	config.Env = append(config.Env,
		"COHORT_TCP_COORDINATOR=launcher@"+door.Addrs()[0].String(), "COHORT_SECRET_FILE="+path)
	config.Descriptors += config.Ranks // every rank's connection stays open
	leave := wire.Serve(door)
	return func() {
		leave()
		if report := door.Report(); report != "" {
			fmt.Fprintf(os.Stderr, "cohort: coordinator: %s\n", report)
		}
		os.RemoveAll(folder)
	}, nil
}

// loopback listens at this machine's loopback interface: at 127.0.0.1, or at ::1 where there is no IPv4.
func loopback(id *wire.Identity) (*wire.Listener, error) {
	addrs, err := wire.Interfaces("")
	if err != nil {
		return nil, fmt.Errorf("listening on the loopback interface: %w", err)
	}
	return wire.Listen(wire.ListenConfig{Addrs: addrs, Identity: id})
}
