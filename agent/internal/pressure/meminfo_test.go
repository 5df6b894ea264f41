package pressure

import "testing"

func TestOnlyLittleAvailableMemoryIsScarce(t *testing.T) {
	for available, expected := range map[string]bool{"0": true, "14351": true, "14352": false, "169000": false} {
		text := "MemTotal:         229640 kB\nMemFree:            9000 kB\nMemAvailable:     " + available + " kB\nBuffers:   12 kB\n"
		if got, err := isScarce(text); err != nil || got != expected {
			t.Error(available, got, err)
		}
	}
}

func TestWhatIsNoMeminfoIsAnError(t *testing.T) {
	for _, text := range []string{"", "MemTotal: 5 kB\n", "MemFree: 1 kB\nMemTotal: 5 kB\nMemAvailable: 1 kB\n"} {
		if _, err := isScarce(text); err == nil {
			t.Error(text)
		}
	}
}
