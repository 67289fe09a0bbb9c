// Package clientcmd has the commands that talk to a running server, or to a throw-away one.
package clientcmd

import (
	"github.com/spf13/cobra"

	"monopod/apiserver/client/dashboardcmd"
	"monopod/apiserver/client/imagescmd"
	"monopod/apiserver/client/kubectlcmd"
	"monopod/apiserver/client/logscmd"
	"monopod/apiserver/client/runcmd"
	"monopod/apiserver/client/statuscmd"
	"monopod/apiserver/client/whycmd"
)

// AddTo adds the commands to root; dataDir is the default of --data-dir.
func AddTo(root *cobra.Command, dataDir string) {
	root.AddCommand(
		dashboardcmd.New(dataDir),
		imagescmd.New(dataDir),
		logscmd.New(dataDir),
		runcmd.New(),
		statuscmd.New(dataDir),
		whycmd.New(dataDir),
	)
	kubectlcmd.AddTo(root, dataDir)
}
