package io.ticdc_assets;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import software.amazon.awssdk.core.ResponseBytes;
import software.amazon.awssdk.core.exception.SdkException;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.GetObjectResponse;
import software.amazon.awssdk.services.s3.model.S3Exception;

/**
 * The log store by which Spark commits to a Delta table on S3: a commit is put where none is, or not
 * at all.
 *
 * <p>A commit is one PUT with If-None-Match: *, which S3 refuses if an object of that name is there,
 * whoever wrote it, in whatever process, with whatever library. So no commit takes the place of
 * another one. Delta's own store for S3 looks first and writes then, under a lock of its process.
 *
 * <p>A PUT whose answer was lost is sent again, and is refused because of itself. What is there is
 * read then: every commit names itself, so the same bytes are this commit. An answer that tells
 * neither ends the same way, by a look at what is there.
 *
 * <p>Everything else that is written to a log (checkpoints, hints, checksums) may take the place of
 * what is there. The client, and so endpoint and credentials, are those of the file system.
 *
 * <p>Not handled: encryption by keys that the file system is told of; a bucket's own applies.
 */
public final class ConditionalS3LogStore extends HadoopFileSystemLogStore {
  private static final int TRIES = 5;
  private static final long PAUSE_MS = 200;

  public ConditionalS3LogStore(Configuration hadoopConf) {
    super(hadoopConf);
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf)
      throws IOException {
    FileSystem files = path.getFileSystem(conf);
    StringBuilder text = new StringBuilder();
    while (actions.hasNext()) {
      text.append(actions.next()).append('\n');
    }
    byte[] bytes = text.toString().getBytes(StandardCharsets.UTF_8);
    if (overwrite) {
      try (OutputStream stream = files.create(path, true)) {
        stream.write(bytes);
      }
      return;
    }
    if (!(files instanceof S3AFileSystem)) {
      throw new IOException(
          path + ": expected the file system S3A, got " + files.getClass().getName());
    }
    putIfAbsent((S3AFileSystem) files, files.makeQualified(path), bytes);
  }

  private static void putIfAbsent(S3AFileSystem files, Path path, byte[] bytes)
      throws IOException {
    S3Client client = files.getS3AInternals().getAmazonS3Client("a Delta commit");
    String key = files.pathToKey(path);
    for (int attempt = 1; ; attempt++) {
      SdkException refusal;
      try {
        client.putObject(
            request ->
                request
                    .bucket(files.getBucket())
                    .key(key)
                    .overrideConfiguration(more -> more.putHeader("If-None-Match", "*")),
            RequestBody.fromBytes(bytes));
        return;
      } catch (SdkException error) {
        refusal = error;
      }
      byte[] there = read(client, files.getBucket(), key, path);
      if (there != null) {
        if (java.util.Arrays.equals(there, bytes)) {
          return;
        }
        throw new FileAlreadyExistsException(path.toString());
      }
      // Nothing is there: another writer's PUT failed, or S3 is not well.
      boolean again = isConflict(refusal) || refusal.retryable();
      if (!again || attempt == TRIES) {
        throw new IOException(path + ": the commit cannot be put", refusal);
      }
      try {
        Thread.sleep(PAUSE_MS * attempt);
      } catch (InterruptedException interrupt) {
        Thread.currentThread().interrupt();
        throw new IOException(path + ": interrupted before the commit was put", interrupt);
      }
    }
  }

  private static boolean isConflict(SdkException error) {
    int status = error instanceof S3Exception ? ((S3Exception) error).statusCode() : 0;
    return status == 409 || status == 412;
  }

  /** Returns what is in an object, null if there is none. */
  private static byte[] read(S3Client client, String bucket, String key, Path path)
      throws IOException {
    try {
      ResponseBytes<GetObjectResponse> found =
          client.getObjectAsBytes(request -> request.bucket(bucket).key(key));
      return found.asByteArray();
    } catch (S3Exception error) {
      if (error.statusCode() == 404) {
        return null;
      }
      throw new IOException(path + ": it cannot be told whether the commit was put", error);
    } catch (SdkException error) {
      throw new IOException(path + ": it cannot be told whether the commit was put", error);
    }
  }

  @Override
  public Boolean isPartialWriteVisible(Path path, Configuration conf) {
    return false;
  }
}
