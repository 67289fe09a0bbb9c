// Command web is the sample container of Monopod; see package program.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/utils/clock"

	"monopod/agent/runtime/fake/program"
)

func main() {
	// As PID 1 of a container, the process receives only signals that have a handler.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1,
		syscall.SIGUSR2)

	hostname, _ := os.Hostname()
	os.Exit(program.Run(context.Background(), program.Process{
		Args:     os.Args,
		Env:      os.Environ(),
		Hostname: hostname,
		Stdin:    os.Stdin,
		Stdout:   os.Stdout,
		Stderr:   os.Stderr,
		Signals:  signals,
		Clock:    clock.RealClock{},
		System:   program.Host{},
	}))
}
