/** `npm run lab -- <command>`: Coppice on an emulated host with KVM, systemd and a disk that forgets what was not flushed. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { assertApt, installPackages, updateOnce } from './setup/apt.mjs';
import { runMain } from './setup/entry.mjs';
import { getNode } from './setup/node-runtime.mjs';
import { findExecutable, isRoot, REPOSITORY } from './setup/paths.mjs';
import { setUpNpmPackages } from './setup/setup.mjs';
import { SetupError } from './setup/setup-error.mjs';

const USAGE = `npm run lab -- <command> [options]

Runs Coppice on an emulated host: a fresh Debian with systemd, KVM, and a disk that forgets what was not flushed when
the power is cut. As root, on Debian. docs/lab.md

  build        makes the disk of a fresh Debian
  install      boots it, installs this checkout's last commit as the README says, and keeps its disk
  update       brings the host to the last commit of this checkout
  check        each thing that a sandbox does, once, under KVM
  service      restart, kill -9, reboot, uninstall and upgrade of the service, with sandboxes running
  other-cpu    what was saved, on a host whose processor lacks features
  power-cuts   cuts the power right after an answer, and looks for all that was ever answered
  start, stop  boots it and waits for the service; shuts it down
  reset        takes its disk back to the installed one
  shell        a shell on it
  destroy      removes it with its disks

  --debian 12         instead of 13
  --quick             a Debian of its own with the packages of set-up, and with the parts that this machine has built:
                      minutes instead of half an hour, and no fresh Debian any more
  --cuts N            of power-cuts; 20 unless given
  --from REVISION     of service: what is upgraded from; the last tag unless given
  --directory DIR     /var/tmp/coppice-lab unless given: 10 GiB
  --port N            of its ssh on 127.0.0.1, 28022 unless given; its API is at the next one

Results are appended to results.ndjson in its directory. The exit code is 1 if anything failed.
`;

/** Debian's packages by the programs that are needed of them. */
const PACKAGES = {
  git: 'git',
  mke2fs: 'e2fsprogs',
  mmdebstrap: 'mmdebstrap',
  nbdkit: 'nbdkit',
  'qemu-system-x86_64': 'qemu-system-x86',
  ssh: 'openssh-client',
};

async function ensurePackages() {
  const missing = Object.entries(PACKAGES).filter(([program]) => findExecutable(program) === undefined);
  if (missing.length === 0) return;
  const names = missing.map(([, name]) => name);
  assertApt(names);
  await updateOnce();
  await installPackages({ packages: names });
}

await runMain(async (args) => {
  if (args.length === 0) {
    process.stdout.write(USAGE);
    return 2;
  }
  if (!isRoot())
    throw new SetupError('the lab needs root: it makes a file system with the files of others', {
      remedy: 'run it with sudo',
    });
  await ensurePackages();
  await setUpNpmPackages();
  const main = join(REPOSITORY, 'lab', 'main.ts');
  // With our terminal, for the shell; a signal of the terminal reaches it without us.
  const child = spawn(getNode(), [main, ...args], { stdio: 'inherit' });
  const [code] = await once(child, 'exit');
  return code ?? 1;
}, USAGE);
