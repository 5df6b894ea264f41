/**
 * A coding agent: a loop in which a model calls tools that act in a sandbox, until the tests of a project pass. The loop
 * and the key of the model are in this process; only what the tools do happens in the sandbox.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Coppice, type CreateOptions, type Sandbox } from '@coppice/sdk';
import { MessagesModel } from './messages-model.ts';
import type { Model, ToolCall } from './model.ts';
import { ScriptedModel } from './scripted-model.ts';
import { runTool } from './tools.ts';

const TASK = 'The tests of the project fail. Repair the code. Do not change the tests.';
const CHECK = 'python3 -m unittest';
const MAX_TURNS = 20;
const INTERRUPTED = 130;

const { values } = parseArgs({
  options: {
    project: { type: 'string', default: fileURLToPath(new URL('project', import.meta.url)) },
    model: { type: 'string' },
    'grant-key': { type: 'boolean', default: false },
  },
});
const interrupt = new AbortController();
const { signal } = interrupt;
// A second Ctrl-C ends the program at once. Its sandbox then ends by its timeout.
for (const name of ['SIGINT', 'SIGTERM']) process.once(name, () => interrupt.abort());
try {
  process.exitCode = (await run()) ? 0 : 1;
} catch (error) {
  console.error(`coding-agent: ${signal.aborted ? 'interrupted' : String(error)}`);
  process.exitCode = signal.aborted ? INTERRUPTED : 1;
}

/** Resolves with whether the tests pass at the end. */
async function run(): Promise<boolean> {
  const model = await openModel();
  // Without the signal: if the call were interrupted, nothing would know the sandbox that it makes.
  await using sandbox = await new Coppice().sandboxes.create({
    image: 'coppice/base:1',
    memMiB: 256,
    timeout: 600,
    maxLifetime: 3600,
    labels: { example: 'coding-agent' },
    ...chooseNetwork(),
  });
  signal.throwIfAborted();
  await uploadProject(sandbox, values.project);
  const { exitCode: prepared, stderr } = await sandbox.exec('git init -q && git add -A', { signal });
  if (prepared !== 0) throw new Error(`the project was not prepared: ${stderr}`);
  await work(sandbox, model);

  // A model may be wrong about what it has done. Its changes to the tests do not count.
  await uploadProject(sandbox, values.project, /^test_/u);
  const { exitCode } = await sandbox.exec(CHECK, { timeout: 120, signal });
  console.log(toPrintable((await sandbox.exec('git diff', { signal })).stdout.trimEnd()));
  console.log(exitCode === 0 ? 'The tests pass.' : 'The tests fail.');
  return exitCode === 0;
}

async function openModel(): Promise<Model> {
  if (values.model === undefined) return ScriptedModel.read(new URL('turns.json', import.meta.url));
  const baseUrl = process.env['ANTHROPIC_BASE_URL'];
  return new MessagesModel({ apiKey: requireKey(), model: values.model, baseUrl });
}

/** Without --grant-key the sandbox reaches nothing. With it, its programs use the API, but see only a placeholder. */
function chooseNetwork(): Pick<CreateOptions, 'network' | 'networkProfile' | 'credentials'> {
  if (!values['grant-key']) return { networkProfile: 'locked-down' };
  return { network: { allow: ['api.anthropic.com'] }, credentials: { anthropic: requireKey() } };
}

function requireKey(): string {
  const key = process.env['ANTHROPIC_API_KEY'];
  if (key === undefined || key === '') throw new Error('set ANTHROPIC_API_KEY to the key of the model');
  return key;
}

/** Uploads the files of a directory whose names match. */
async function uploadProject(sandbox: Sandbox, directory: string, names = /^/u): Promise<void> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  for (const entry of entries.filter(({ name }) => names.test(name))) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    await sandbox.upload(relative(directory, path), await readFile(path), { signal });
  }
}

/** Lets the model call tools until it has a turn without a call. */
async function work(sandbox: Sandbox, model: Model): Promise<void> {
  let turn = await model.next(TASK, signal);
  for (let count = 1; turn.calls.length > 0; count += 1) {
    if (count === MAX_TURNS) throw new Error(`the model has not finished after ${MAX_TURNS} turns`);
    if (turn.text !== '') console.log(`model: ${turn.text}`);
    const results = [];
    for (const call of turn.calls) {
      console.log(`  ${describe(call)}`);
      const result = await runTool(sandbox, call, signal);
      console.log(indent(result.output));
      results.push(result);
    }
    turn = await model.next(results, signal);
  }
  console.log(`model: ${turn.text}`);
}

function describe({ name, input }: ToolCall): string {
  const { content: _content, ...shown } = input;
  return toPrintable(`${name} ${JSON.stringify(shown)}`);
}

/** Shows the first and the last lines. */
function indent(output: string): string {
  const lines = toPrintable(output).trimEnd().split('\n');
  const shown = lines.length <= 8 ? lines : [...lines.slice(0, 2), '…', ...lines.slice(-4)];
  return shown.map((line) => `    ${line}`).join('\n');
}

/** Removes control characters: text out of a sandbox must not control your terminal. */
function toPrintable(text: string): string {
  return text.replaceAll(/[^\P{Cc}\n\t]/gu, '');
}
