/** Fields that several tools share. */
import { z } from 'zod';
import type { Sandbox, SandboxInfo } from '../../../sdk/src/index.ts';
import { noSandbox } from './describe-failure.ts';
import type { ToolCall } from './tool.ts';

export const SandboxId = z
  .string()
  .regex(
    /^run[0-9a-f]{1,64}$/u,
    'is not the id of a sandbox; create one with create_sandbox, or list those that exist with list_sandboxes',
  )
  .describe('Id of the sandbox, as create_sandbox, restore, fork or list_sandboxes returned it');

export const GuestPath = z.string().min(1).max(4096);

export const Labels = z
  .record(z.string().min(1).max(63), z.string().max(255))
  .describe('Up to 32 labels of your choice, by which list_sandboxes filters');

/** Only calls that reach the guest or change the sandbox restart the timer. */
export const IDLE_TIMEOUT =
  'Seconds without a command, a file call or a request to a port after which the sandbox is destroyed; list_sandboxes and ' +
  'url do not count. 0 means never';

export const IdleTimeout = z.int().min(0).max(2_592_000).describe(IDLE_TIMEOUT);

const Rules = z.array(z.string().min(1).max(255)).max(256);

export const Network = z
  .strictObject({ allow: Rules.optional(), deny: Rules.optional() })
  .describe(
    'Rules for outbound connections: CIDR ranges, addresses, host names, *.domain. Excludes networkProfile',
  );

export const NetworkProfile = z
  .string()
  .min(1)
  .max(64)
  .describe('Named rules, for example unrestricted or locked-down. Excludes network');

/** The part of a sandbox's record that a model needs. */
export const SandboxRecord = z.object({
  sandboxId: z.string(),
  status: z.string().describe('creating, running, hibernated, destroyed or failed'),
  image: z.string(),
  vcpus: z.number(),
  memMiB: z.number(),
  diskMiB: z.number(),
  createdAt: z.string(),
  expiresAt: z.string().nullable().describe('When the idle sandbox is destroyed; null means never'),
  parentId: z.string().nullable().describe('The sandbox that was forked or saved'),
  statusReason: z.string().nullable(),
  labels: z.record(z.string(), z.string()),
});

export function toRecord(info: Readonly<SandboxInfo>): z.input<typeof SandboxRecord> {
  const { id, status, image, vcpus, memMiB, diskMiB, createdAt, expiresAt, parentId, statusReason, labels } =
    info;
  return {
    sandboxId: id,
    status,
    image,
    vcpus,
    memMiB,
    diskMiB,
    createdAt,
    expiresAt,
    parentId,
    statusReason,
    labels,
  };
}

/** Throws {@link ToolError} with the next step for an unknown sandbox. */
export async function getSandbox(
  { client, signal }: Pick<ToolCall, 'client' | 'signal'>,
  id: string,
): Promise<Sandbox> {
  const sandbox = await client.sandboxes.get(id, { signal });
  if (sandbox === null) throw noSandbox(id);
  return sandbox;
}

/**
 * Runs a call that creates sandboxes to its end, also when the caller cancels it: otherwise they would run
 * unknown to the caller. Then destroys them.
 */
export async function createUnlessCancelled<Made extends Sandbox | Sandbox[]>(
  { signal, creations }: Pick<ToolCall, 'signal' | 'creations'>,
  create: () => Promise<Made>,
): Promise<Made> {
  signal.throwIfAborted();
  return creations.track(async () => {
    const made = await create();
    const sandboxes: Sandbox[] = [made].flat();
    if (signal.aborted) {
      await creations.discard(sandboxes);
      signal.throwIfAborted();
    }
    creations.add(sandboxes);
    return made;
  });
}
