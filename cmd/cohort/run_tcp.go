package main

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cohort-hpc/cohort/internal/meet"
	"github.com/cohort-hpc/cohort/internal/remote"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// tcpCoordinator makes this process the coordinator of the ranks of a job on this machine, on the
// loopback interface. It adds to config the job's name and the variables with the address and the path
// of the secret, a file in the job's folder that only this user can read. leave ends the coordinator.
func tcpCoordinator(config *spawn.Config) (leave func(), err error) {
	fail := func(err error) (func(), error) { return nil, fmt.Errorf("--backend tcp: %w", err) }
	secret, path := meet.NewSecret(), filepath.Join(config.Folder, "secret")
	config.Job = rand.Text()
	addrs, err := meet.Interfaces("") // the loopback interface
	if err != nil {
		return fail(fmt.Errorf("listening on the loopback interface: %w", err))
	}
	if err := secret.WriteFile(path); err != nil {
		return fail(err)
	}
	at, leave, err := remote.Coordinate(config.Job, config.Programs.Ranks(), secret, addrs, os.Stderr)
	if err != nil {
		return fail(err)
	}
	config.Env = append(config.Env,
		"COHORT_TCP_COORDINATOR=launcher@"+at[0].String(), "COHORT_SECRET_FILE="+path)
	return leave, nil
}
