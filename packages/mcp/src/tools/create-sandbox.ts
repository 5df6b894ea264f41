import { z } from 'zod';
import {
  createUnlessCancelled,
  IDLE_TIMEOUT,
  IdleTimeout,
  Labels,
  Network,
  NetworkProfile,
  SandboxRecord,
  toRecord,
} from '../definition/sandbox-fields.ts';
import { defineTool } from '../definition/tool.ts';

export const createSandbox = defineTool({
  name: 'create_sandbox',
  title: 'Create a sandbox',
  description:
    'Boots a new isolated Linux virtual machine from an OCI image and returns its sandboxId, which most other tools need. ' +
    'The first use of an image takes up to a minute. The sandbox costs money until destroy_sandbox or its idle timeout.',
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: true },
  input: z.strictObject({
    image: z
      .string()
      .min(1)
      .max(512)
      .optional()
      .describe(
        'OCI image with a tag or digest, for example python:3.12-slim. The tags latest, lts and stable are refused. ' +
          'coppice/base:1 (Debian with git, python3 and node) needs no registry. Default node:22-slim',
      ),
    vcpus: z.int().min(1).max(32).optional().describe('Virtual CPUs. Default 1'),
    memMiB: z.int().min(128).max(262_144).optional().describe('Memory in MiB. Default 1024'),
    diskMiB: z
      .int()
      .min(64)
      .max(1_048_576)
      .optional()
      .describe('Writable disk in MiB, used as it is written. Default 4096'),
    timeout: IdleTimeout.optional().describe(`${IDLE_TIMEOUT}. Default 300`),
    labels: Labels.optional(),
    network: Network.optional(),
    networkProfile: NetworkProfile.optional(),
    disk: z
      .string()
      .min(1)
      .max(30)
      .optional()
      .describe('Name of a persistent disk for /workspace. Default: /workspace ends with the sandbox'),
  }),
  output: SandboxRecord,
  run: async (args, call) => {
    const sandbox = await createUnlessCancelled(call, () => call.client.sandboxes.create(args));
    return toRecord(sandbox.record);
  },
});
