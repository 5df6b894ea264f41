import type { Command } from 'commander';
import { toCommandLine } from '../attach/command-line.ts';
import { action, addCommand, addGuestCommand, first } from '../calls/command-call.ts';
import { collect } from '../calls/parse-values.ts';
import { findSandbox } from '../calls/find-sandbox.ts';
import { write } from '../output/output.ts';
import { relaySsh } from '../ssh/relay-ssh.ts';
import { runSsh } from '../ssh/run-ssh.ts';
import {
  buildKnownHost,
  buildSshConfig,
  buildSshOptions,
  DEFAULT_USER,
  parseHost,
  parseUser,
  readInvocation,
} from '../ssh/ssh-options.ts';

export function addSsh(program: Command): void {
  addConnect(program);
  addConfig(program);
  addProxy(program);
  addHostKey(program);
}

function addConnect(program: Command): void {
  const command = addCommand(program, {
    syntax: 'ssh <sandbox>',
    summary: 'opens an SSH session in a sandbox',
    details:
      'Runs the ssh of this machine, which reaches the sandbox through the API: no port is open, and the API key is the only ' +
      'key. The exit code is that of the command; 255 if SSH or its connection failed; 125 if coppice could not start it, for ' +
      'example because there is no such sandbox. For scp, sftp, rsync, git and editors see ssh-config.',
    examples: [
      'coppice ssh first',
      'coppice ssh first -- make test',
      'coppice ssh -t first -- top',
      'coppice ssh -L 3000:localhost:3000 first',
    ],
  });
  addGuestCommand(command, '[command...]')
    .option('-u, --user <user>', "name or uid (default: the image's, else root)", DEFAULT_USER)
    .option('-t, --tty', 'gives the command a terminal')
    .option(
      '-L, --forward <port:host:port>',
      'forwards a port of this machine to one of the sandbox; may be repeated',
      collect,
    )
    .action(
      action<{ user: string; tty?: true; forward?: string[] }>(async (call) => {
        const { user, tty, forward = [] } = call.options;
        const words = call.operands.slice(1);
        const { id } = await findSandbox(call.connect(), first(call));
        const options = buildSshOptions(readInvocation(call.options), { host: '%n', user: '%r' });
        return runSsh([
          ...options.flatMap(([name, value]) => ['-o', `${name}=${value}`]),
          ...(tty === undefined ? [] : ['-t']),
          ...forward.flatMap((one) => ['-L', one]),
          '-l',
          user,
          '--',
          id,
          ...(words.length === 0 ? [] : [toCommandLine(words)]),
        ]);
      }),
    );
}

function addConfig(program: Command): void {
  addCommand(program, {
    syntax: 'ssh-config',
    summary: 'prints the configuration with which SSH reaches sandboxes',
    details:
      'With it, "<sandbox>.coppice" is a host for ssh, scp, sftp, rsync, git and editors. Put the line "Include coppice.conf" at ' +
      'the top of ~/.ssh/config. The configuration contains the path of this program and no key. It needs OpenSSH 8.5 or newer.',
    examples: ['coppice ssh-config > ~/.ssh/coppice.conf', 'scp notes.txt first.coppice:/workspace/'],
  }).action(
    action<object>(async (call) => {
      const config = buildSshConfig(readInvocation(call.options));
      await (call.out.isJson ? call.out.json({ config }) : write(process.stdout, config));
    }),
  );
}

function addProxy(program: Command): void {
  addCommand(program, {
    syntax: 'ssh-proxy <sandbox>',
    summary: 'connects standard input and output with the SSH server of a sandbox',
    details: 'SSH runs it; see ssh-config.',
    examples: ["ssh -o ProxyCommand='coppice ssh-proxy %n' first"],
  })
    .option('-u, --user <user>', "name or uid (default: the image's, else root)")
    .action(
      action<{ user?: string }>(async (call) => {
        const sandbox = await findSandbox(call.connect(), parseHost(first(call)));
        await relaySsh(await sandbox.ssh({ user: parseUser(call.options.user) }));
      }),
    );
}

function addHostKey(program: Command): void {
  addCommand(program, {
    syntax: 'ssh-host-key <sandbox>',
    summary: "prints the sandbox's host key as a line of known_hosts",
    details: 'SSH runs it; see ssh-config.',
    examples: ['coppice ssh-host-key first'],
  }).action(
    action<object>(async (call) => {
      const sandbox = await findSandbox(call.connect(), parseHost(first(call)));
      await write(process.stdout, `${buildKnownHost(await sandbox.sshHostKey())}\n`);
    }),
  );
}
