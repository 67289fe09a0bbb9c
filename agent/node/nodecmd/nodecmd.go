// Package nodecmd has the commands that look after the machine of a node.
package nodecmd

import (
	"github.com/spf13/cobra"

	"monopod/agent/node/check/checkcmd"
	"monopod/agent/node/inspectcmd"
	"monopod/agent/node/installcmd"
	"monopod/agent/node/shutdown/draincmd"
	"monopod/agent/runtime/containerd/resetcmd"
	"monopod/apiserver/process/commandline"
)

// AddTo adds the commands to root; dataDir is the default of --data-dir.
func AddTo(root *cobra.Command, dataDir string, versions commandline.Versions) {
	root.AddCommand(
		checkcmd.New(dataDir, versions.Built()),
		draincmd.New(dataDir),
		inspectcmd.New(dataDir, versions),
		resetcmd.New(dataDir),
	)
	root.AddCommand(installcmd.New(dataDir)...)
}
