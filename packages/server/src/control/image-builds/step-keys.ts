/**
 * Names the results of steps, so that a later build finds them. A key is a hash of the key before it and of all that the step
 * depends on here: its text, the variables, the user and the directory, and the files that it copies. The first key stands for
 * the image, the team, and what the sandbox may reach with which credentials: a guest can make anything of a step, so no other
 * team begins with it. Data that a step reads from the network, and the values of secrets, are no part of it.
 */
import { createHash, type Hash } from 'node:crypto';
import { AppError } from '@coppice/contract';
import type { StoredConfig } from '../../lib/protocol/runner-protocol.ts';
import type { ContextFiles } from './context-index.ts';
import { Secret } from '../../lib/secret.ts';
import type { RequestedEgress } from '../sandbox/sandboxes.ts';
import type { PlannedStep } from './planned-step.ts';
import type { CopySources } from './copy-sources.ts';
import type { Selection } from './select-files.ts';
import { StepScope } from './step-scope.ts';

/** Changed when the same step has another effect than before. */
const VERSION = 3;

/** Whose sandbox runs the steps, and what it may reach. */
interface StepRights {
  organizationId: string;
  teamId: string;
  egress: RequestedEgress;
}

export interface KeyedSteps {
  rights: StepRights;
  base: Pick<StoredConfig, 'digest' | 'config'>;
  steps: readonly PlannedStep[];
  escape: string | undefined;
  proxies?: Readonly<Record<string, string>> | undefined;
  copies: CopySources | undefined;
  signal: AbortSignal;
}

/** Returns the key of each step. Those from a step on whose files are missing have none: it will fail. */
export async function listStepKeys(keyed: KeyedSteps): Promise<string[]> {
  const { rights, base, steps, escape, proxies, copies, signal } = keyed;
  const scope = new StepScope(base.config, escape, proxies);
  const copied = new Map<string, Promise<string>>();
  const keys: string[] = [];
  let key = hashOf([VERSION, describeRights(rights), base.digest]);
  for (const [index, planned] of steps.entries()) {
    signal.throwIfAborted();
    const expanded = scope.expand(planned);
    const { line: _, ...step } = expanded;
    const files = await hashFiles(expanded, {
      copies,
      copied,
      signal,
      select: (found) => found.select(index, scope),
    });
    if (files === undefined) break;
    const { user, workdir } = scope.config;
    key = hashOf([key, step, scope.variables, user, workdir, files]);
    keys.push(key);
    scope.take(expanded);
  }
  return keys;
}

function describeRights({ organizationId, teamId, egress: { network, grants } }: StepRights): unknown {
  const credentials = grants.map(({ service, endpoints, secret }) => {
    const name = secret instanceof Secret ? null : secret;
    return { service, endpoints, name };
  });
  return { organizationId, teamId, network: network ?? null, credentials };
}

/** Returns undefined if the files cannot be copied. */
async function hashFiles(
  { copy, line }: PlannedStep,
  { copies, copied, select, signal }: FilesOfBuild,
): Promise<string | undefined> {
  if (copy === undefined) return '';
  if (copies === undefined) return undefined;
  const { from_path, mode } = copy;
  // Whether a pattern may match nothing depends on the line, too.
  const asked = JSON.stringify([from_path, mode, line]);
  const hashing = copied.get(asked) ?? hashCopied(copies, { copy, selecting: select(copies), signal });
  copied.set(asked, hashing);
  try {
    return await hashing;
  } catch (error) {
    if (error instanceof AppError && error.code === 'build_failed') return undefined;
    throw error;
  }
}

interface FilesOfBuild {
  copies: CopySources | undefined;
  select: (copies: CopySources) => Promise<Selection>;
  /** Hashes of files that an earlier step has copied too. */
  copied: Map<string, Promise<string>>;
  signal: AbortSignal;
}

/** Owners and times are left out: the step sets the owner, and another checkout of the same files has other times. */
async function hashCopied(
  copies: CopySources,
  {
    copy: { mode },
    selecting,
    signal,
  }: { copy: NonNullable<PlannedStep['copy']>; selecting: Promise<Selection>; signal: AbortSignal },
): Promise<string> {
  const selection = await selecting;
  return copies.inTurn(() => hashSelection(copies.context, { selection, mode, signal }));
}

async function hashSelection(
  { path: contextPath, index }: ContextFiles,
  { selection, mode, signal }: { selection: Selection; mode: string | undefined; signal: AbortSignal },
): Promise<string> {
  const given = mode === undefined ? undefined : Number.parseInt(mode, 8);
  const hash: Hash = createHash('sha256').update(JSON.stringify([selection.hasDirectory, given]));
  const numbers = selection.entries.map(({ number }) => number);
  let at = 0;
  for await (const digest of index.digest(contextPath, numbers, signal)) {
    const { number, path } = selection.entries[at] ?? { number: 0, path: '' };
    const { type, mode: own, target, sizeBytes } = index.entry(number);
    hash.update(JSON.stringify([path, type, given ?? own, target, sizeBytes])).update(digest);
    at += 1;
  }
  return hash.digest('hex');
}

function hashOf(parts: unknown[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex');
}
