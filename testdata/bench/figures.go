package main

// group is a benchmark in a folder of testdata, with the figures that it measures.
type group struct {
	folder, benchmark string
	times             string // -benchtime
	together          bool   // measure both programs at the same time, once: the benchmark takes minutes, mostly idle
	rows              []row
}

// row is a figure: the metric of a benchmark with this unit. The name of the benchmark is without "Benchmark".
type row struct{ figure, benchmark, unit string }

// groups lists the figures of docs/benchmarks.md, in its order, except the size of the program.
var groups = []group{
	{folder: "machine", benchmark: "Ready$", times: "5x", rows: []row{
		{"exec to ready, empty, ms", "Ready", "ms/ready"},
	}},
	{folder: "machine", benchmark: "ReadyFull$", times: "5x", rows: []row{
		{"exec to ready, 10,000 pods, ms", "ReadyFull", "ms/ready"},
		{"its RSS, 10,000 pods, MB", "ReadyFull", "MB-RSS"},
	}},
	{folder: "machine", benchmark: "Run$", times: "3x", rows: []row{
		{"monopod run until the node is ready, ms", "Run", "ms-p50"},
	}},
	{folder: "machine", benchmark: "Idle$", times: "1x", together: true, rows: []row{
		{"idle minute, ten pods: RSS, MB", "Idle", "MB-RSS"},
		{"idle minute, ten pods: anonymous, MB", "Idle", "MB-anonymous"},
		{"idle minute, ten pods: % of a core", "Idle", "%CPU"},
		{"idle minute, ten pods: bytes written", "Idle", "bytes-written/min"},
	}},
	{rows: []row{{"size of the program, MB", "", ""}}},
	{folder: "load", benchmark: "Load$", times: "1x", rows: []row{
		{"ConfigMap create c=1, per s", "Load/ConfigMap-create-c=1", "each/s"},
		{"ConfigMap create c=16, per s", "Load/ConfigMap-create-c=16", "each/s"},
		{"ConfigMap create c=64, per s", "Load/ConfigMap-create-c=64", "each/s"},
		{"pod create c=16, per s", "Load/pod-create-c=16", "each/s"},
		{"pod create c=64, per s", "Load/pod-create-c=64", "each/s"},
		{"GET pod c=64, per s", "Load/pod-GET-c=64", "each/s"},
		{"GET pod c=64, p99, ms", "Load/pod-GET-c=64", "ms-p99"},
		{"LIST 3,000 pods, p50, ms", "Load/LIST-3000-pods", "ms-p50"},
		{"LIST 6,000 pods, p50, ms", "Load/LIST-6000-pods", "ms-p50"},
		{"PATCH status c=16, per s", "Load/pod-PATCH-status-c=16", "each/s"},
		{"DELETE grace 0 c=16, per s", "Load/pod-DELETE-c=16", "each/s"},
		{"100 watches × 50/s, p99, ms", "Load/100-watches", "ms-p99"},
		{"100 watches × 50/s, cores", "Load/100-watches", "cores"},
		{"1,000 watches × 50/s, p99, ms", "Load/1000-watches", "ms-p99"},
		{"1,000 watches × 50/s, cores", "Load/1000-watches", "cores"},
		{"RSS after all requests and watches, MB", "Load/after-it-all", "MB-RSS"},
	}},
	{folder: "machine", benchmark: "Growth/^(object|pod-elsewhere|service|definition|watch-http2)$/n=(1000|300)$",
		times: "1x", rows: []row{
			{"memory of an idle watch, KB", "Growth/watch-http2/n=1000", "KB-each"},
			{"memory of a ConfigMap of 1 KB, KB", "Growth/object/n=1000", "KB-each"},
			{"memory of a pod of another node, KB", "Growth/pod-elsewhere/n=1000", "KB-each"},
			{"memory of a Service, KB", "Growth/service/n=1000", "KB-each"},
			{"memory of a definition of 300, KB", "Growth/definition/n=300", "KB-each"},
		}},
	{folder: "machine", benchmark: "PodLife/pods=1$", times: "10x", rows: []row{
		{"one pod: create to Running, p50, ms", "PodLife/pods=1", "ms/start"},
		{"one pod: delete to gone, p50, ms", "PodLife/pods=1", "ms/delete"},
	}},
	{folder: "machine", benchmark: "PodLife/pods=20$", times: "3x", rows: []row{
		{"20 pods at once: all Running, ms", "PodLife/pods=20", "ms/start"},
		{"20 pods at once: all gone, ms", "PodLife/pods=20", "ms/delete"},
	}},
	{folder: "machine", benchmark: "Burst$", times: "1x", rows: []row{
		{"20 pods in 128 MB: all Running, ms", "Burst", "ms/running"},
		{"20 pods in 128 MB: all gone, ms", "Burst", "ms/gone"},
		{"20 pods in 128 MB: slowest GET, ms", "Burst", "ms/slowest-GET"},
		{"20 pods in 128 MB: killed by the kernel", "Burst", "killed"},
	}},
	{folder: "abuse", benchmark: "Hostile$", times: "1x", rows: []row{
		{"hostile bodies: another user's GET, p99, ms", "Hostile", "ms-GET-p99"},
		{"hostile bodies: peak RSS, MB", "Hostile", "MB-RSS-peak"},
	}},
}
