; The threads of a library.

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(LONG, ptr)
declare ptr @worker(ptr)
declare void @stop(ptr)

@pool = internal global [128 x i64] zeroinitializer, align 64
@workers = internal global [255 x %Worker] zeroinitializer
@handles = internal global [255 x LONG] zeroinitializer
@running = internal global i32 0

; The pool, null if there are no threads.
define internal ptr @helpers() #0 {
  %count = load atomic i32, ptr @running acquire, align 4
  %some = icmp ne i32 %count, 0
  %pool = select i1 %some, ptr @pool, ptr null
  ret ptr %pool
}

define i32 @P_threads(i32 %count, i32 %spins) #1 {
entry:
  %bad = icmp slt i32 %count, 1
  br i1 %bad, label %refuse, label %begin
refuse:
  ret i32 1
begin:
  call void @P_stop()
  %usual = icmp slt i32 %spins, 0
  %chosen = select i1 %usual, i32 SPINS, i32 %spins
  %chosen.long = sext i32 %chosen to i64
  store i64 %chosen.long, ptr @spins
  %helpers = sub i32 %count, 1
  %many = icmp sgt i32 %helpers, 255
  %limit = select i1 %many, i32 255, i32 %helpers
  br label %clear
clear:
  %c = phi i64 [ 0, %begin ], [ %c.next, %clear ]
  %word.at = getelementptr i64, ptr @pool, i64 %c
  store i64 0, ptr %word.at
  %c.next = add i64 %c, 1
  %c.more = icmp slt i64 %c.next, 128
  br i1 %c.more, label %clear, label %next
next:
  %k = phi i32 [ 0, %clear ], [ %k.next, %started ]
  %more = icmp slt i32 %k, %limit
  br i1 %more, label %start, label %end
start:
  %worker.at = getelementptr %Worker, ptr @workers, i32 %k
  %pool.number = ptrtoint ptr @pool to i64
  store i64 %pool.number, ptr %worker.at
  %k.next = add i32 %k, 1
  %number = zext i32 %k.next to i64
  %number.at = getelementptr %Worker, ptr %worker.at, i32 0, i32 1
  store i64 %number, ptr %number.at
  %handle.at = getelementptr LONG, ptr @handles, i32 %k
  %problem = call i32 @pthread_create(ptr %handle.at, ptr null, ptr @worker, ptr %worker.at)
  %fine = icmp eq i32 %problem, 0
  br i1 %fine, label %started, label %end
started:
  store atomic i32 %k.next, ptr @running release, align 4
  br label %next
end:
  %all = icmp eq i32 %k, %helpers
  %status = select i1 %all, i32 0, i32 6
  ret i32 %status
}

define void @P_stop() #1 {
entry:
  %count = load atomic i32, ptr @running acquire, align 4
  store atomic i32 0, ptr @running release, align 4
  %some = icmp ne i32 %count, 0
  br i1 %some, label %quit, label %end
quit:
  call void @stop(ptr @pool)
  br label %next
next:
  %k = phi i32 [ 0, %quit ], [ %k.next, %next ]
  %handle.at = getelementptr LONG, ptr @handles, i32 %k
  %handle = load LONG, ptr %handle.at
  %joined = call i32 @pthread_join(LONG %handle, ptr null)
  %k.next = add i32 %k, 1
  %more = icmp slt i32 %k.next, %count
  br i1 %more, label %next, label %end
end:
  ret void
}

attributes #0 = { nounwind }
