import { AppError } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import type { RunnerClient } from '../placement/runner-client.ts';

const NETWORK_FIELDS = ['network', 'network_profile'];

/** Before the schema says that this version has no rules: there are none to be had on a machine without a network. */
export async function refuseNetworkRules(request: FastifyRequest, runner: RunnerClient): Promise<void> {
  const { body } = request;
  if (typeof body !== 'object' || body === null) return;
  const fields = NETWORK_FIELDS.filter((field) => Object.hasOwn(body, field));
  if (fields.length === 0) return;
  const { network, network_reason: reason } = await runner.status();
  if (network === 'filtered') return;
  throw new AppError(
    'invalid_request',
    `${fields.join(', ')}: no rules can be set, sandboxes on this machine have no network at all: ${reason}`,
  );
}
