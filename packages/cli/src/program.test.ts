import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import fc from 'fast-check';
import { toCommandLine } from './attach/command-line.ts';
import { parseMiB, parsePair, parseSeconds, whole } from './calls/parse-values.ts';
import { listCandidates } from './completion/candidates.ts';
import { SCRIPTS } from './completion/scripts.ts';
import { buildProgram } from './program.ts';

const program = buildProgram('1.2.3');

function listLeaves(command: Command): Command[] {
  const children = command.commands.flatMap(listLeaves);
  return children.length === 0 ? [command] : children;
}

function readHelp(command: Command): string {
  let help = '';
  command.configureOutput({ writeOut: (text) => (help += text) }).outputHelp();
  return help;
}

test('every command has a help with an example that begins with its own name', () => {
  const leaves = listLeaves(program).filter((leaf) => !['admin', 'complete'].includes(leaf.name()));
  assert.ok(leaves.length > 35, `${leaves.length} commands`);
  for (const leaf of leaves) {
    const parent = leaf.parent === program ? '' : `${leaf.parent?.name()} `;
    const help = readHelp(leaf);
    assert.match(
      help,
      new RegExp(`Examples:\\n(?:.*\\n)*.*coppice (?:${parent}${leaf.name()}|${parent.trim()})\\b`, 'u'),
      help,
    );
    for (const global of ['--profile', '--url', '--json'])
      assert.ok(help.includes(global), `${leaf.name()}: ${global}`);
  }
  assert.equal(readHelp(program).split('--profile <name>').length - 1, 1, 'lists an option once');
});

test('one word is a line for the shell; several words reach the program unchanged', () => {
  assert.equal(toCommandLine(['echo a | cat']), 'echo a | cat');
  assert.equal(toCommandLine(['ls', '-l', '/a b']), "exec ls -l '/a b'");
  const word = fc.string({ unit: fc.constantFrom('a', ' ', "'", '"', '$', '\\', '\n', '*', 'é', '`', '-') });
  fc.assert(
    fc.property(fc.array(word, { minLength: 1, maxLength: 4 }), (words) => {
      const line = toCommandLine(['printf', '%s\\0', ...words]);
      const output = execFileSync('/bin/sh', ['-c', line], { encoding: 'utf8' });
      assert.deepEqual(output.split('\0').slice(0, -1), words);
    }),
    { numRuns: 50 },
  );
});

test('sizes, times, numbers and pairs are parsed, and errors name the form', () => {
  assert.deepEqual(['512', '512m', '2g', '1GiB', '3 MiB'].map(parseMiB), [512, 512, 2048, 1024, 3]);
  assert.deepEqual(['90', '90s', '10m', '2h', '1d', '0'].map(parseSeconds), [90, 90, 600, 7200, 86_400, 0]);
  for (const text of ['', 'x', '-1', '1.5g', '5k'])
    assert.throws(() => parseMiB(text), /such as 512m or 2g/u);
  for (const text of ['', '1w', '-1']) assert.throws(() => parseSeconds(text), /such as 90, 10m/u);
  assert.equal(whole(1, 10)('10'), 10);
  for (const text of ['0', '11', '1e1', ''])
    assert.throws(() => whole(1, 10)(text), /a whole number, 1 to 10/u);
  assert.deepEqual(parsePair('b=c=d', { a: '' }), { a: '', b: 'c=d' });
  assert.ok(Object.hasOwn(parsePair('__proto__=x'), '__proto__'));
  for (const text of ['a', '=b']) assert.throws(() => parsePair(text), /Expected key=value/u);
});

test('commands, subcommands and options are completed', async () => {
  const complete = (...words: string[]): Promise<string[]> => listCandidates(program, words);
  assert.deepEqual(await complete('cre'), ['create']);
  assert.deepEqual(await complete('disks', 'sn'), ['snapshot', 'snapshots']);
  assert.deepEqual(await complete('--json', 'disks', 'sn'), ['snapshot', 'snapshots']);
  assert.deepEqual(await complete('create', '--cpus', '2', '--me'), ['--mem']);
  assert.deepEqual(await complete('create', '--jso'), ['--json']);
  assert.deepEqual(await complete('create', '--cpus', ''), []);
  assert.deepEqual(await complete('exec', 'run01', '--', 'l'), []);
});

test('nothing is completed within a command of the guest', async () => {
  for (const words of [
    ['exec', 'run01', 'grep', '-'],
    ['shell', 'run01', 'htop', '--'],
    ['run', 'img:1', 'x', ''],
  ])
    assert.deepEqual(await listCandidates(program, words), []);
});

test('the package is for no Windows, whose paths and permissions it does not know, and says so', () => {
  const { os } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
    os: string[];
  };
  assert.deepEqual(os, ['!win32']);
  const preload = 'data:text/javascript,Object.defineProperty(process, "platform", { value: "win32" })';
  const bin = fileURLToPath(new URL('../bin/coppice.mjs', import.meta.url));
  const { status, stderr } = spawnSync(process.execPath, ['--import', preload, bin, 'ls'], {
    encoding: 'utf8',
  });
  assert.deepEqual(
    [status, stderr],
    [1, 'coppice: Windows is not supported: run coppice in WSL, the Windows Subsystem for Linux\n'],
  );
});

test('a global option may stand before and after the command, and the latter counts', () => {
  const read = (...args: string[]): object => {
    const parser = buildProgram('1');
    let options = {};
    for (const command of [parser.commands.find((one) => one.name() === 'images')])
      command?.hook('preAction', (_, leaf) => {
        options = { ...leaf.parent?.parent?.opts(), ...leaf.parent?.opts(), ...leaf.opts() };
        throw new Error('parsed');
      });
    assert.throws(() => parser.parse(args, { from: 'user' }), /parsed/u);
    return options;
  };
  assert.deepEqual(read('--json', '--profile', 'a', 'images', 'ls', '--profile', 'b'), {
    json: true,
    profile: 'b',
  });
  assert.deepEqual(read('images', '--json'), { json: true });
});

test('the scripts for shells are valid', () => {
  for (const [shell, script] of Object.entries(SCRIPTS)) assert.match(script, /coppice complete -- /u, shell);
  execFileSync('bash', ['-n'], { input: SCRIPTS['bash'] });
});
