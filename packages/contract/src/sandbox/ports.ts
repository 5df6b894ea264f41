/** Wire forms of tickets and preview links, which open ports and streams to a browser. */
import { z } from 'zod';
import { boundedInt, Timestamp } from '../fields.ts';

const MAX_PORT = 65_535;
export const MAX_TICKET_S = 300;
export const DEFAULT_TICKET_S = 60;
const MIN_PREVIEW_S = 60;
const MAX_PREVIEW_S = 30 * 86_400;
export const DEFAULT_PREVIEW_S = 3600;

/** A port as part of a path. */
export const PortText = z
  .string()
  .refine((text) => /^[1-9]\d{0,4}$/.test(text) && Number(text) <= MAX_PORT, {
    error: `must be a whole number from 1 to ${MAX_PORT}`,
  })
  .meta({ type: 'integer', minimum: 1, maximum: MAX_PORT });

/** Body of `POST /v1/runs/{id}/tickets`. */
export const CreateTicketRequest = z
  .strictObject({ expires_in: boundedInt(1, MAX_TICKET_S, 'seconds').default(DEFAULT_TICKET_S) })
  .meta({ id: 'CreateTicketRequest' });

export const Ticket = z
  .object({
    ticket: z.string().describe('For `?ticket=` of a WebSocket of the sandbox; valid once.'),
    expires_at: Timestamp,
  })
  .meta({ id: 'Ticket' });
export type Ticket = z.infer<typeof Ticket>;

/** Body of `POST /v1/runs/{id}/ports/{port}/preview`. */
export const CreatePreviewRequest = z
  .strictObject({
    expires_in: boundedInt(MIN_PREVIEW_S, MAX_PREVIEW_S, 'seconds').default(DEFAULT_PREVIEW_S),
  })
  .meta({ id: 'CreatePreviewRequest' });

export const PreviewRecord = z
  .object({ id: z.string(), port: z.int(), created_at: Timestamp, expires_at: Timestamp })
  .meta({ id: 'Preview' });
export type PreviewRecord = z.infer<typeof PreviewRecord>;

export const CreatedPreview = PreviewRecord.extend({
  url: z
    .string()
    .describe(
      'Anyone with this URL can use the port until the URL expires or is revoked: treat it as a password.',
    ),
}).meta({ id: 'CreatedPreview' });
export type CreatedPreview = z.infer<typeof CreatedPreview>;
