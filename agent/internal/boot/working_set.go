package boot

import (
	"log/slog"
	"os"
)

// A program that fills the memory makes the kernel push out the pages that all programs run from, and read them again,
// for minutes: it is making progress, so it ends nobody. Told to keep what was used in the last second, it ends the
// program that fills the memory at once (Documentation/admin-guide/mm/multigen_lru.rst, "Thrashing prevention").
var workingSet = []struct{ path, value string }{
	{"/sys/kernel/mm/lru_gen/enabled", "y"},
	{"/sys/kernel/mm/lru_gen/min_ttl_ms", "1000"},
}

// protectWorkingSet does what the kernel can: one before 6.1 knows nothing of it.
func protectWorkingSet() {
	for _, setting := range workingSet {
		if err := os.WriteFile(setting.path, []byte(setting.value), 0o644); err != nil {
			slog.Warn("working set not protected", "error", err)
			return
		}
	}
}
