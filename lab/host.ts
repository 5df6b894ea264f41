/**
 * Runs an emulated host. QEMU's TCG emulates AMD's SVM, so a kernel in it has a working KVM. nbdkit serves the host's
 * disk and keeps writes in its own memory until the host flushes them:
 *
 *     host ─► QEMU ─► nbdkit, cache=writeback ─► disk.img, a copy of installed.img or fresh.img
 *
 * A power cut kills both at once: all unflushed writes are lost, including overwrites.
 */
import { spawn } from 'node:child_process';
import { existsSync, openSync, readFileSync } from 'node:fs';
import { chmod, mkdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { findExecutable } from '../scripts/setup/paths.mjs';
import { run } from '../scripts/setup/run-command.mjs';
import { SetupError } from '../scripts/setup/setup-error.mjs';
import type { HostImage } from './host-image.ts';
import { waitFor } from './wait-for.ts';

const QEMU = 'qemu-system-x86_64';
const NBDKIT = 'nbdkit';
const CPU = 'EPYC,+svm,+npt,+invtsc';
const CPUS = 2;
const MEM_MIB = 8192;
const BOOT_TIMEOUT_MS = 30 * 60_000;
const MAX_BOOTS = 4;
/** Linux prints this when the timer of an emulated CPU is lost, as in some boots: that CPU then stands still. */
const LOST_TIMER = "kthread timer wakeup didn't happen";
const TOOL_TIMEOUT_MS = 10 * 60_000;
const COMMAND_TIMEOUT_MS = 10 * 60_000;
const END_TIMEOUT_MS = 10 * 60_000;
const POLL_MS = 1000;
const KERNEL_LINE =
  'root=/dev/vda rw console=ttyS0 mitigations=off nokaslr tsc=reliable no_timer_check systemd.show_status=0';
const SSH_OPTIONS = [
  'StrictHostKeyChecking=no',
  'UserKnownHostsFile=/dev/null',
  'LogLevel=ERROR',
  'ConnectTimeout=30',
  'ServerAliveInterval=30',
].flatMap((option) => ['-o', option]);

export interface LabHostOptions {
  /** Directory of the host's disks, sockets and logs. */
  directory: string;
  image: HostImage;
  /** Port on 127.0.0.1 that leads to the host's ssh. */
  port: number;
}

export interface CommandOptions {
  allowFailure?: boolean;
  timeoutMs?: number;
}

export class LabHost {
  readonly #options: LabHostOptions;

  constructor(options: LabHostOptions) {
    this.#options = options;
  }

  get isRunning(): boolean {
    return this.#findPid(QEMU) !== undefined;
  }

  get isInstalled(): boolean {
    return existsSync(this.#installed);
  }

  get #disk(): string {
    return this.#path('disk.img');
  }

  get #installed(): string {
    return this.#path('installed.img');
  }

  /** Console output since the last boot. */
  get #log(): string {
    return this.#path('serial.log');
  }

  #path(name: string): string {
    return join(this.#options.directory, name);
  }

  /**
   * Boots the host unless it runs, and waits until it accepts commands. `lacking` lists CPU features to leave out.
   * Throws SetupError if the host does not boot.
   */
  async start(lacking: readonly string[] = []): Promise<void> {
    for (let boots = 1; boots <= MAX_BOOTS; boots += 1) {
      if (!this.isRunning) await this.#boot(lacking);
      if (await this.#untilAnswers()) return;
      process.stdout.write('the emulated host has lost a timer; cutting its power and booting it again\n');
      await this.cutPower();
    }
    throw new SetupError(`the emulated host lost a timer in each of ${MAX_BOOTS} boots; see ${this.#log}`);
  }

  /** @returns true when the host answers; false when it has lost a timer and never will */
  async #untilAnswers(): Promise<boolean> {
    const failure = (): string =>
      `the host did not boot within ${BOOT_TIMEOUT_MS / 60_000} minutes; see ${this.#log}`;
    return waitFor({ timeoutMs: BOOT_TIMEOUT_MS, intervalMs: POLL_MS, failure }, async () => {
      if (await this.#answers()) return true;
      if (!this.isRunning) throw new SetupError(`QEMU of the host has exited; see ${this.#log}`);
      return this.#hasLostTimer() ? false : undefined;
    });
  }

  #hasLostTimer(): boolean {
    return existsSync(this.#log) && readFileSync(this.#log, 'utf8').includes(LOST_TIMER);
  }

  async #answers(): Promise<boolean> {
    const { exitCode } = await this.run('true', { allowFailure: true });
    return exitCode === 0;
  }

  async #boot(lacking: readonly string[]): Promise<void> {
    await mkdir(this.#options.directory, { recursive: true });
    if (!existsSync(this.#disk)) await this.#makeDisk();
    const socket = this.#path('nbd');
    await rm(socket, { force: true });
    // Output of an earlier boot must not count for this one.
    await rm(this.#log, { force: true });
    const pidFile = ['--pidfile', this.#path(`${NBDKIT}.pid`)];
    // nbdkit puts itself into the background: in the foreground it would end with its parent.
    this.#spawn(NBDKIT, [
      '--unix',
      socket,
      ...pidFile,
      '--filter=cache',
      'file',
      this.#disk,
      'cache=writeback',
    ]);
    await this.#waitFor(NBDKIT, () => existsSync(socket));
    this.#spawn(QEMU, this.#buildQemuArguments(socket, lacking));
    await this.#waitFor(QEMU, () => this.isRunning);
  }

  #buildQemuArguments(socket: string, lacking: readonly string[]): string[] {
    const { image, port } = this.#options;
    const disk = {
      driver: 'raw',
      'node-name': 'disk',
      file: { driver: 'nbd', server: { type: 'unix', path: socket } },
    };
    const options = {
      display: 'none',
      machine: 'q35,hpet=on',
      accel: 'tcg,thread=multi,tb-size=1024',
      cpu: [CPU, ...lacking.map((feature) => `-${feature}`)].join(','),
      smp: String(CPUS),
      m: String(MEM_MIB),
      kernel: image.kernel,
      initrd: image.initrd,
      append: KERNEL_LINE,
      blockdev: JSON.stringify(disk),
      nic: `user,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:${port}-:22`,
      serial: `file:${this.#log}`,
      pidfile: this.#path(`${QEMU}.pid`),
    };
    const devices = ['virtio-blk-pci,drive=disk', 'virtio-rng-pci'].flatMap((device) => ['-device', device]);
    const words = Object.entries(options).flatMap(([name, value]) => [`-${name}`, value]);
    return ['-nodefaults', '-no-user-config', ...words, ...devices];
  }

  async #makeDisk(): Promise<void> {
    const from = this.isInstalled ? this.#installed : this.#options.image.disk;
    const draft = `${this.#disk}.new`;
    const step = "copying the host's disk";
    await run('cp', ['--sparse=always', '--reflink=auto', from, draft], { step, timeoutMs: TOOL_TIMEOUT_MS });
    await chmod(draft, 0o600);
    await rename(draft, this.#disk);
  }

  /** Starts a program that outlives this process: the next lab command finds it by its pid file. */
  #spawn(program: string, args: string[]): void {
    const log = openSync(this.#path(`${program}.log`), 'a');
    spawn(findExecutable(program) ?? program, args, { stdio: ['ignore', log, log], detached: true }).unref();
  }

  async #waitFor(program: string, isThere: () => boolean): Promise<void> {
    const failure = (): string => `${program} did not start; see ${this.#path(`${program}.log`)}`;
    await waitFor({ timeoutMs: TOOL_TIMEOUT_MS, intervalMs: 50, failure }, () => isThere() || undefined);
  }

  /** Runs a command in the host's shell and returns its standard output. */
  async read(command: string, options: CommandOptions = {}): Promise<string> {
    return (await this.run(command, options)).stdout;
  }

  async run(
    command: string,
    { allowFailure = false, timeoutMs = COMMAND_TIMEOUT_MS }: CommandOptions = {},
  ): Promise<{ exitCode: number; stdout: string; output: string }> {
    const words = [...this.sshWords, 'root@127.0.0.1', command];
    return run('ssh', words, { step: `on the host: ${command}`, timeoutMs, allowFailure });
  }

  async copyIn(file: string, to: string): Promise<void> {
    const { image, port } = this.#options;
    const words = ['-q', '-i', image.key, '-P', String(port), ...SSH_OPTIONS, file, `root@127.0.0.1:${to}`];
    await run('scp', words, { step: `copying ${file} to the host`, timeoutMs: COMMAND_TIMEOUT_MS });
  }

  /** Options for ssh, without the address and the command. */
  get sshWords(): string[] {
    const { image, port } = this.#options;
    return ['-i', image.key, '-p', String(port), ...SSH_OPTIONS];
  }

  /** Kills QEMU and nbdkit like a power cut: unflushed writes are lost. */
  async cutPower(): Promise<void> {
    for (const program of [QEMU, NBDKIT]) this.#kill(program, 'SIGKILL');
    for (const program of [QEMU, NBDKIT]) await this.#untilEnded(program);
  }

  async shutDown(): Promise<void> {
    if (!this.isRunning) return;
    await this.run('systemctl poweroff', { allowFailure: true });
    await this.#untilEnded(QEMU);
    this.#kill(NBDKIT, 'SIGTERM');
    await this.#untilEnded(NBDKIT);
  }

  /** Shuts the host down and keeps its disk as the one that later checks start from. */
  async keepAsInstalled(): Promise<void> {
    await this.shutDown();
    await rename(this.#disk, this.#installed);
  }

  /** Resets the disk to its state after the installation. */
  async reset(): Promise<void> {
    await this.cutPower();
    await rm(this.#disk, { force: true });
  }

  async #untilEnded(program: string): Promise<void> {
    const failure = (): string => `${program} of the host does not end`;
    await waitFor(
      { timeoutMs: END_TIMEOUT_MS, intervalMs: 100, failure },
      () => this.#findPid(program) === undefined || undefined,
    );
    await rm(this.#path(`${program}.pid`), { force: true });
  }

  #kill(program: string, signal: NodeJS.Signals): void {
    const pid = this.#findPid(program);
    if (pid !== undefined) process.kill(pid, signal);
  }

  /** Returns the pid of the program if it runs. */
  #findPid(program: string): number | undefined {
    const path = this.#path(`${program}.pid`);
    if (!existsSync(path)) return undefined;
    const pid = Number(readFileSync(path, 'utf8'));
    return isProgram(pid, program) ? pid : undefined;
  }
}

/** Checks the pid: after a reboot of this machine another process may have it. */
function isProgram(pid: number, program: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')[0]?.endsWith(program) ?? false;
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) return false;
    throw error;
  }
}
