/**
 * Preview links. A link is signed, expires, can be revoked, and grants no more than the API key that requested it. It
 * leads to the port's own origin and leaves its token there in a cookie, which every later request sends:
 *
 *   POST …/preview ─► link ── opened ─► cookie on <port>-<id>.<domain> ── each request ─► signature, SQL ─► the guest
 */
import { AppError, type CreatedPreview, type PreviewRecord } from '@coppice/contract';
import { z } from 'zod';
import { newId } from '../../lib/new-id.ts';
import type { Reach } from '../accounts/organizations/reach.ts';
import { TokenSigner } from '../secrets/token-signer.ts';
import type { GuestPort } from './port-agent.ts';
import type { PreviewOrigins } from './preview-origins.ts';
import type { FoundPreview, PreviewRow, PreviewStore } from './preview-store.ts';

export const PREVIEW_LINK_PATH = '/.well-known/coppice/preview';
const MAX_LIVE_EACH = 100;

const Payload = z.strictObject({ preview_id: z.string() });

export interface PreviewsParts {
  store: PreviewStore;
  origins: PreviewOrigins;
  masterKey: Buffer;
  now?: () => number;
}

export interface NewPreview extends GuestPort {
  organizationId: string;
  apiKeyId: string;
  expiresInS: number;
}

export interface OpenedPreview extends FoundPreview {
  reach: Reach;
}

export class Previews {
  readonly #store: PreviewStore;
  readonly #origins: PreviewOrigins;
  readonly #signer: TokenSigner<typeof Payload>;
  readonly #now: () => number;

  constructor({ store, origins, masterKey, now = Date.now }: PreviewsParts) {
    this.#store = store;
    this.#origins = origins;
    this.#signer = new TokenSigner(masterKey, { purpose: 'preview', schema: Payload });
    this.#now = now;
  }

  async create({ organizationId, apiKeyId, id, port, expiresInS }: NewPreview): Promise<CreatedPreview> {
    const now = this.#now();
    const live = await this.#store.listLive(id, now);
    if (live.length >= MAX_LIVE_EACH)
      throw new AppError(
        'rate_limited',
        `the sandbox has ${live.length} preview links, which is the limit; revoke some, or use them again`,
      );
    const row: PreviewRow = {
      id: newId('prev'),
      organization_id: organizationId,
      sandbox_id: id,
      port,
      created_at: now,
      expires_at: now + expiresInS * 1000,
      revoked_at: null,
      api_key_id: apiKeyId,
    };
    await this.#store.insert(row);
    const token = this.#signer.sign({ preview_id: row.id });
    const url = `${this.#origins.build({ id, port })}${PREVIEW_LINK_PATH}?token=${token}`;
    return { ...toRecord(row), url };
  }

  async list(sandboxId: string): Promise<PreviewRecord[]> {
    return (await this.#store.listLive(sandboxId, this.#now())).map(toRecord);
  }

  /** Revokes a link from the next request on. Throws `not_found`. */
  async revoke(sandboxId: string, previewId: string): Promise<void> {
    if (await this.#store.revoke(sandboxId, previewId, this.#now())) return;
    throw new AppError(
      'not_found',
      'there is no such preview link of this sandbox, or it is revoked already',
    );
  }

  /**
   * Returns the preview of a token, with the reach of its key. Throws `unauthorized` unless the token opens `target`.
   */
  async open(token: string, target: GuestPort): Promise<OpenedPreview> {
    const payload = this.#signer.verify(token);
    const row = payload === undefined ? undefined : await this.#store.find(payload.preview_id);
    if (row?.sandbox_id !== target.id || row.port !== target.port) throw closed('it is not for this port');
    if (row.revoked_at !== null) throw closed('it was revoked');
    if (row.expires_at <= this.#now()) throw closed('it has expired');
    if (row.api_key_id !== null && row.key_is_active !== true)
      throw closed('its API key is revoked or has expired');
    if (row.key_scope === 'read') throw closed('its API key only reads');
    const onlyTeamId = row.key_team_only === true ? row.key_team_id : null;
    return { ...row, reach: { organizationId: row.organization_id, onlyTeamId } };
  }

  async purge(): Promise<void> {
    await this.#store.purge(this.#now());
  }
}

function closed(why: string): AppError {
  return new AppError('unauthorized', `the preview link does not open this page: ${why}; ask for a new one`);
}

function toRecord({ id, port, created_at, expires_at }: PreviewRow): PreviewRecord {
  return {
    id,
    port,
    created_at: new Date(created_at).toISOString(),
    expires_at: new Date(expires_at).toISOString(),
  };
}
