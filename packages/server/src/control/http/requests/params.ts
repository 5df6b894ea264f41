import { PortText } from '@coppice/contract';
import { z } from 'zod';

/** Accepts an id of any shape: one that does not exist is 404, not 400. */
export const SandboxParams = z.strictObject({ id: z.string().max(200) });

/** Query of every WebSocket of a sandbox. */
export const TicketQuery = z.strictObject({
  ticket: z
    .string()
    .optional()
    .describe('A ticket of `POST …/tickets`, for clients that cannot send headers.'),
});

export const PortParams = SandboxParams.extend({ port: PortText });

export const PreviewParams = SandboxParams.extend({ previewId: z.string().max(200) });

export const CommandParams = SandboxParams.extend({ command: z.string().max(200) });

export const SnapshotParams = z.strictObject({ id: z.string().max(200) });

export const DiskParams = z.strictObject({ disk: z.string().max(200) });

export const DiskSnapshotParams = DiskParams.extend({ diskSnapshot: z.string().max(200) });

export const WebhookParams = z.strictObject({ webhook: z.string().max(200) });

export const DeliveryParams = WebhookParams.extend({ delivery: z.string().max(200) });

export const BudgetParams = z.strictObject({ scope: z.string().max(200) });

/** Accepts any text: an error in words explains which names are possible. */
export const SecretParams = z.strictObject({ name: z.string().max(200) });

/** Accepts any text: an error in words explains which text names a registry, instead of a pattern. */
export const RegistryParams = z.strictObject({ registry: z.string().max(1024) });
