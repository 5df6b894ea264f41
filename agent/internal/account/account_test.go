package account

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

var sample = Database{
	Users:  ParsePasswd([]byte("root:x:0:0:root:/root:/bin/sh\n# no user\nnode:x:1000:1001::/home/node:/bin/sh\nbad:x:a:b::\nhomeless:x:7:8\n")),
	Groups: ParseGroup([]byte("root:x:0:\nnode:x:1001:\ndocker:x:50:node,root\nvideo:x:44:node\nbad:x:-1:node\n")),
}

func TestResolveFollowsTheFormsOfAnImagesUser(t *testing.T) {
	cases := map[string]Identity{
		"":             {UID: 0, GID: 0, Groups: []uint32{50}, Name: "root", Home: "/root"},
		"node":         {UID: 1000, GID: 1001, Groups: []uint32{50, 44}, Name: "node", Home: "/home/node"},
		"1000":         {UID: 1000, GID: 1001, Groups: []uint32{50, 44}, Name: "node", Home: "/home/node"},
		"node:video":   {UID: 1000, GID: 44, Name: "node", Home: "/home/node"},
		"node:":        {UID: 1000, GID: 1001, Groups: []uint32{50, 44}, Name: "node", Home: "/home/node"},
		"4242":         {UID: 4242, GID: 0, Name: "4242", Home: "/"},
		"4242:4343":    {UID: 4242, GID: 4343, Name: "4242", Home: "/"},
		":50":          {UID: 0, GID: 50, Name: "root", Home: "/root"},
		"homeless":     {UID: 7, GID: 8, Name: "homeless", Home: "/"},
		"4294967294:5": {UID: 4294967294, GID: 5, Name: "4294967294", Home: "/"},
	}
	for spec, want := range cases {
		got, err := sample.Resolve(spec)
		if err != nil {
			t.Errorf("%q: %v", spec, err)
			continue
		}
		if got.UID != want.UID || got.GID != want.GID || got.Name != want.Name || got.Home != want.Home || !slices.Equal(got.Groups, want.Groups) {
			t.Errorf("%q: got %+v, want %+v", spec, got, want)
		}
	}
}

func TestResolveRefusesWhatIsNeitherANameNorANumber(t *testing.T) {
	for _, spec := range []string{"nobody", "node:nogroup", "-1", "4294967295", "99999999999", "no de", "a\x00b", "1000:-5"} {
		if who, err := sample.Resolve(spec); err == nil {
			t.Errorf("%q became %+v", spec, who)
		}
	}
}

func TestLoadTakesMissingFilesForEmptyOnes(t *testing.T) {
	database, err := Load(t.TempDir())
	if err != nil || len(database.Users) != 0 {
		t.Fatal(database, err)
	}
	if who, err := database.Resolve(""); err != nil || who.Home != "/root" {
		t.Fatal(who, err)
	}
}

func TestLoadDoesNotWaitForAPipeInThePlaceOfAFile(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(root, "etc/passwd"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(root); err == nil {
		t.Fatal("a pipe was read as a file")
	}
}

func FuzzDatabase(f *testing.F) {
	f.Add([]byte("root:x:0:0:root:/root:/bin/sh"), []byte("docker:x:50:node,root"), "node:docker")
	f.Add([]byte(":::::\n\x00:1"), []byte("::,:,"), "0:")
	f.Fuzz(func(t *testing.T, passwd, group []byte, spec string) {
		database := Database{Users: ParsePasswd(passwd), Groups: ParseGroup(group)}
		who, err := database.Resolve(spec)
		if err == nil && (who.UID == 1<<32-1 || who.GID == 1<<32-1) {
			t.Fatalf("%q became the number that means unchanged", spec)
		}
		if err == nil && who.Home == "" {
			t.Fatalf("%q has no home", spec)
		}
	})
}

func TestAFileWhoseNameLeadsNowhereIsAnEmptyOne(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(os.WriteFile(root+"/file", nil, 0o600), os.Symlink("file", root+"/etc")); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(root); err != nil || len(got.Users) != 0 {
		t.Fatal(got, err)
	}
}
