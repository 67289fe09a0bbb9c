// Package cmd has monopod's commands beside serve, one in each file: those that talk to a running server or to a
// throw-away one, those that work on the files of a server, and those that look after the machine of a node.
//
// A command is a function that returns it, in a file of its own, and a line in All. It states its subject as GroupID.
package cmd

import (
	"time"

	"github.com/spf13/cobra"

	"monopod/agent/cmd/commandline"
	"monopod/apiserver/setup"
	"monopod/store/state"
)

// The subjects of commands, in the order of the help, which lists commands without a subject last.
const (
	Start     = "Start"
	Look      = "Look"
	AsService = "As a service"
	Maintain  = "Maintain"
	Kubectl   = "kubectl's commands"
)

// Deps are what commands need to know of the program.
type Deps struct {
	DataDir  string // the default of --data-dir
	Versions commandline.Versions
	EventTTL time.Duration // after which Events in etcd expire
}

// All returns the commands.
func All(d Deps) []*cobra.Command {
	all := []*cobra.Command{
		addonCommand(d.DataDir),
		certsCommand(d.DataDir),
		checkCommand(d.DataDir, d.Versions.Built()),
		dashboardCommand(d.DataDir),
		drainCommand(d.DataDir),
		imagesCommand(d.DataDir),
		inspectCommand(d.DataDir, d.Versions),
		joinCommand(d.DataDir, d.Versions),
		leaveCommand(d.DataDir),
		logsCommand(d.DataDir),
		resetCommand(d.DataDir),
		runCommand(),
		snapshotCommand(snapshotConfig{DataDir: d.DataDir, Store: setup.Stores}),
		statusCommand(d.DataDir),
		tokenCommand(d.DataDir),
		storeCommand(func() state.Config { return setup.SharedStores(d.EventTTL) }),
		whyCommand(d.DataDir),
	}
	all = append(all, installCommands(d.DataDir)...)
	return append(all, kubectlCommands(d.DataDir)...)
}

// AddTo adds the subjects and the commands to root.
func AddTo(root *cobra.Command, all ...*cobra.Command) {
	for _, subject := range []string{Start, Look, AsService, Maintain, Kubectl} {
		root.AddGroup(&cobra.Group{ID: subject, Title: subject + ":"})
	}
	root.AddCommand(all...)
}
