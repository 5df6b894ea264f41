/**
 * Prepares a sandbox once, forks a child for each candidate patch, runs the tests in all of them at the same time, and
 * keeps the best. Every sandbox is destroyed at the end, also after an error or Ctrl-C; --keep leaves the best running.
 */
import { readdir, readFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { Coppice, ForkError, type Sandbox } from '@coppice/sdk';

const REPOSITORY = new URL('repository/', import.meta.url);
const CANDIDATES = new URL('candidates/', import.meta.url);
const INTERRUPTED = 130;

interface Candidate {
  name: string;
  patch: string;
}

interface Score {
  passed: number;
  total: number;
  /** Why the tests did not run. */
  problem?: string;
}

interface Attempt {
  candidate: Candidate;
  sandbox: Sandbox;
  score: Score;
}

const { values } = parseArgs({ options: { keep: { type: 'boolean', default: false } } });
const interrupt = new AbortController();
const { signal } = interrupt;
// A second Ctrl-C ends the program at once. Its sandboxes then end by their timeout.
for (const name of ['SIGINT', 'SIGTERM']) process.once(name, () => interrupt.abort());

/** All sandboxes that this program must destroy. */
const owned = new Set<Sandbox>();
try {
  await run();
} catch (error) {
  console.error(`best-of-n: ${signal.aborted ? 'interrupted' : String(error)}`);
  process.exitCode = signal.aborted ? INTERRUPTED : 1;
} finally {
  await destroyOwned();
}

async function run(): Promise<void> {
  const candidates = await readCandidates();
  const parent = await prepare(new Coppice());
  const before = await runTests(parent);
  console.log(`before: ${describe(before)}`);

  const children = await fork(parent, candidates.length);
  console.log(`forked ${children.length} sandboxes`);
  const attempts = await Promise.all(
    children.map((sandbox, index) => attempt(sandbox, candidates[index] as Candidate)),
  );
  for (const { candidate, score } of attempts) console.log(`${candidate.name}: ${describe(score)}`);

  const [best, ...others] = attempts.toSorted(compare);
  await Promise.all(others.map(({ sandbox }) => sandbox.destroy().catch(() => undefined)));
  if (best === undefined || best.score.passed <= before.passed)
    throw new Error('no candidate is an improvement');
  console.log(`best: ${best.candidate.name}`);
  console.log((await best.sandbox.exec('git diff', { signal })).stdout.trimEnd());
  if (!values.keep) return;
  owned.delete(best.sandbox);
  console.log(`kept: ${best.sandbox.id}`);
}

async function readCandidates(): Promise<Candidate[]> {
  const names = (await readdir(CANDIDATES)).filter((name) => name.endsWith('.patch')).toSorted();
  if (names.length === 0) throw new Error('there is no patch in the folder candidates');
  return Promise.all(
    names.map(async (name) => ({
      name: name.replace(/\.patch$/u, ''),
      patch: await readFile(new URL(name, CANDIDATES), 'utf8'),
    })),
  );
}

/** Makes the sandbox that all children are copies of. Slow steps, such as installing packages, belong here. */
async function prepare(client: Coppice): Promise<Sandbox> {
  // Without the signal, as is the fork: if it were interrupted, nothing would know the sandbox that it makes.
  const sandbox = await client.sandboxes.create({
    image: 'coppice/base:1',
    memMiB: 256,
    timeout: 300,
    labels: { example: 'best-of-n' },
    networkProfile: 'locked-down', // a candidate must not look up the answer
  });
  owned.add(sandbox);
  signal.throwIfAborted();
  for (const name of await readdir(REPOSITORY))
    await sandbox.upload(`/workspace/${name}`, await readFile(new URL(name, REPOSITORY)), { signal });
  const { exitCode, stderr } = await sandbox.exec('git init -q && git add -A', { signal });
  if (exitCode !== 0) throw new Error(`the repository was not prepared: ${stderr}`);
  return sandbox;
}

async function fork(parent: Sandbox, count: number): Promise<Sandbox[]> {
  try {
    const children = await parent.fork(count);
    for (const child of children) owned.add(child);
    signal.throwIfAborted();
    return children;
  } catch (error) {
    // If not all fit, some run.
    if (error instanceof ForkError) for (const child of error.children) owned.add(child);
    throw error;
  }
}

/** Never rejects for a sandbox that fails: the others are still worth comparing. */
async function attempt(sandbox: Sandbox, candidate: Candidate): Promise<Attempt> {
  try {
    return { candidate, sandbox, score: await judge(sandbox, candidate) };
  } catch (error) {
    signal.throwIfAborted();
    return { candidate, sandbox, score: { passed: 0, total: 0, problem: String(error) } };
  }
}

async function judge(sandbox: Sandbox, { patch }: Candidate): Promise<Score> {
  const applied = await sandbox.exec('git apply -', { stdin: patch, signal });
  if (applied.exitCode === 0) return runTests(sandbox);
  return { passed: 0, total: 0, problem: `does not apply (${applied.stderr.split('\n', 1)[0]})` };
}

async function runTests(sandbox: Sandbox): Promise<Score> {
  const { stderr, timedOut } = await sandbox.exec('python3 -m unittest', { timeout: 120, signal });
  if (timedOut) return { passed: 0, total: 0, problem: 'the tests did not end' };
  const count = (pattern: RegExp): number => Number(pattern.exec(stderr)?.[1] ?? 0);
  const total = count(/^Ran (\d+) test/mu);
  return { total, passed: total - count(/failures=(\d+)/u) - count(/errors=(\d+)/u) };
}

/** The best first: the one that passes most tests; of those, the one that changes least. */
function compare(a: Attempt, b: Attempt): number {
  return b.score.passed - a.score.passed || a.candidate.patch.length - b.candidate.patch.length;
}

function describe({ passed, total, problem }: Score): string {
  return problem ?? `${passed} of ${total} tests pass`;
}

async function destroyOwned(): Promise<void> {
  await Promise.all(
    [...owned].map(async (sandbox) => {
      try {
        await sandbox[Symbol.asyncDispose]();
      } catch (error) {
        console.error(`best-of-n: ${sandbox.id} was not destroyed: ${String(error)}`);
        process.exitCode = 1;
      }
    }),
  );
}
