/**
 * `npm run lab -- <command>`: runs Coppice on an emulated host with KVM, systemd and a disk that loses unflushed writes
 * when the power is cut.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { assertApt, installPackages, updateOnce } from './setup/packages/apt.mjs';
import { runMain } from './setup/entry.mjs';
import { getNode } from './setup/node-runtime.mjs';
import { findExecutable, isRoot, REPOSITORY } from './setup/paths.mjs';
import { setUpNpmPackages } from './setup/setup.mjs';
import { SetupError } from './setup/setup-error.mjs';

const USAGE = `npm run lab -- <command> [options]

Runs Coppice on an emulated host: a fresh Debian with systemd, KVM, and a disk that loses unflushed writes when the
power is cut. Run it as root, on Debian. Details: docs/lab.md

  build        builds the host's disk with a fresh Debian
  install      boots the host, installs this checkout's last commit as the README says, and keeps the disk
  update       updates the host to the last commit of this checkout
  check        tests each sandbox feature once, under KVM
  service      tests restart, kill -9, reboot, uninstall and upgrade of the service, with sandboxes running
  other-cpu    saves sandboxes, then tests them on a host whose CPU lacks features
  power-cuts   cuts the power right after an answer, then checks that all acknowledged changes are there
  start, stop  boots the host and waits for the service; shuts the host down
  reset        resets the host's disk to its state after install
  shell        opens a shell on the host
  destroy      removes the host and its disks

  --debian 12         uses Debian 12 instead of 13
  --quick             uses a second host image, which already contains set-up's packages and the parts that this
                      machine has built: takes minutes instead of half an hour, but is not a fresh Debian
  --cuts N            number of cuts of power-cuts; default 20
  --from REVISION     revision that service upgrades from; default: the last tag
  --directory DIR     where hosts are kept, 10 GiB; default /var/tmp/coppice-lab
  --port N            port of the host's ssh on 127.0.0.1, default 28022; its API uses the next port

Results are appended to results.ndjson in the host's directory. The exit code is 1 if anything failed.
`;

/** The required programs, and the Debian package of each. */
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
    throw new SetupError('the lab needs root: it builds a file system with files of other users', {
      remedy: 'run it with sudo',
    });
  await ensurePackages();
  await setUpNpmPackages();
  const main = join(REPOSITORY, 'lab', 'main.ts');
  // The child inherits the terminal, for `shell`, so the terminal's signals reach it directly.
  const child = spawn(getNode(), [main, ...args], { stdio: 'inherit' });
  const [code] = await once(child, 'exit');
  return code ?? 1;
}, USAGE);
