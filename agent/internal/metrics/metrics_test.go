package metrics

import "testing"

func TestReadMeasuresThisMachine(t *testing.T) {
	m, err := Read("/")
	if err != nil {
		t.Fatal(err)
	}
	if m.MemTotalBytes == 0 || m.MemAvailableBytes > m.MemTotalBytes || m.DiskUsedBytes > m.DiskTotalBytes || m.Processes < 1 {
		t.Fatalf("%+v", m)
	}
}

func TestKernelThreadsAreToldByTheirFlagsWhateverTheirName(t *testing.T) {
	if !isKernelThread([]byte("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0")) {
		t.Error("kthreadd is a kernel thread")
	}
	if isKernelThread([]byte("77 (a) b) 2129984) S 1 77 77 0 -1 4194304 0 0")) {
		t.Error("a process with an odd name is not a kernel thread")
	}
}

func FuzzProc(f *testing.F) {
	f.Add([]byte("MemTotal:  5 kB\nMemAvailable: 3 kB\n"))
	f.Add([]byte("1 (a) S 1 1 1 0 -1 2129984"))
	f.Add([]byte("0.52 0.58 0.59 1/467 12"))
	f.Fuzz(func(t *testing.T, content []byte) {
		parseMeminfo(content)
		isKernelThread(content)
		if load := parseLoad(content); load < 0 || load != load {
			t.Fatal(load)
		}
	})
}
