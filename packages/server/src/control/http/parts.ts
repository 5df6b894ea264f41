import type { Authenticate } from '../auth/authenticator.ts';
import type { Tickets } from '../auth/tickets.ts';
import type { ControlLimits } from '../control-config.ts';
import type { ImageUses } from '../images/image-uses.ts';
import type { PortForwarder } from '../ports/forward.ts';
import type { PreviewOrigins } from '../ports/preview-origins.ts';
import type { Previews } from '../ports/previews.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import type { Registries } from '../registries/registries.ts';
import type { Idempotency } from '../sandbox/idempotency.ts';
import type { OutputBudget } from '../sandbox/output-capture.ts';
import type { Sandboxes } from '../sandbox/sandboxes.ts';
import type { Snapshots } from '../snapshots/snapshots.ts';
import type { Exposure } from './exposure.ts';
import type { OpenRequests } from './open-requests.ts';

/** What the endpoints are made of; each names the ones it uses. */
export interface HttpParts {
  authenticate: Authenticate;
  tickets: Tickets;
  sandboxes: Sandboxes;
  snapshots: Snapshots;
  registries: Registries;
  imageUses: ImageUses;
  runner: RunnerClient;
  forwarder: PortForwarder;
  previews: Previews;
  previewOrigins: PreviewOrigins;
  idempotency: Idempotency;
  openRequests: OpenRequests;
  outputBudget: OutputBudget;
  limits: ControlLimits;
  version: string;
  exposure: Exposure;
  /** Throws AppError `unavailable` when the service cannot serve. */
  checkHealth: () => Promise<void>;
}
