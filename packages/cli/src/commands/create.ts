import type { Command } from 'commander';
import { action, addCommand, first } from '../calls/command-call.ts';
import {
  addProcessDefaults,
  addSandboxOptions,
  toCreateOptions,
  type ProcessDefaults,
  type SandboxOptions,
} from '../calls/sandbox-options.ts';

export function addCreate(program: Command): void {
  const command = addCommand(program, {
    syntax: 'create <image>',
    summary: 'creates a sandbox and prints its id',
    details:
      'The image is a Docker reference with a tag or a digest; "latest" and a missing tag are rejected.',
    examples: [
      'coppice create coppice/base:1',
      'coppice create --name build -e NPM_TOKEN node:22-slim   # the value of your own NPM_TOKEN',
      'coppice create --cpus 2 --mem 2g --timeout 1h --label job=nightly python:3.12-slim',
      'id=$(coppice create --disk data coppice/base:1)',
    ],
  });
  addProcessDefaults(addSandboxOptions(command)).action(
    action<SandboxOptions & ProcessDefaults>(async (call) => {
      const settings = toCreateOptions(first(call), { ...call.options, defaults: call.options });
      const created = call.connect().sandboxes.create(settings);
      const sandbox = await call.out.during('creating the sandbox …', created);
      await call.out.result(sandbox.record, sandbox.id);
    }),
  );
}
