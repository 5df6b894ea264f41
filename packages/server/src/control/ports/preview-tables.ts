export interface PreviewTable {
  id: string;
  organization_id: string;
  sandbox_id: string;
  port: number;
  created_at: number;
  expires_at: number;
  revoked_at: number | null;
  /** The key that requested the link; the link ends with it. Null for a link of an earlier version. */
  api_key_id: string | null;
}
