export interface ImageUseTable {
  organization_id: string;
  /** Resolved reference, `registry/repository:tag@sha256:…`. */
  image: string;
  digest: string;
  last_used_at: number;
}
