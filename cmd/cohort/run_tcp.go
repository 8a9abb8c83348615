package main

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/cohort-hpc/cohort/internal/meet"
	"github.com/cohort-hpc/cohort/internal/remote"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// tcpCoordinator makes this process the coordinator of the ranks of a job on this machine, on the
// loopback interface. It adds to config the job's name and the variables with the address and the path
// of the secret, a file that only this user can read. end undoes all of it when the job is over.
func tcpCoordinator(config *spawn.Config) (end func(), err error) {
	fail := func(err error) (func(), error) { return nil, fmt.Errorf("--backend tcp: %w", err) }
	folder, err := tempFolder(config.Keeper)
	if err != nil {
		return fail(err)
	}
	secret, path := meet.NewSecret(), filepath.Join(folder, "secret")
	config.Job = rand.Text()
	addrs, err := meet.Interfaces("") // the loopback interface
	if err != nil {
		err = fmt.Errorf("listening on the loopback interface: %w", err)
	}
	if err == nil {
		err = secret.WriteFile(path)
	}
	var at []netip.AddrPort
	var leave func()
	if err == nil {
		at, leave, err = remote.Coordinate(config.Job, config.Ranks, secret, addrs, os.Stderr)
	}
	if err != nil {
		os.RemoveAll(folder)
		return fail(err)
	}
	if config.Env == nil {
		config.Env = os.Environ()
	}
	config.Env = append(config.Env,
		"COHORT_TCP_COORDINATOR=launcher@"+at[0].String(), "COHORT_SECRET_FILE="+path)
	config.Descriptors += config.Ranks // every rank's connection stays open
	return func() {
		leave()
		os.RemoveAll(folder)
	}, nil
}
