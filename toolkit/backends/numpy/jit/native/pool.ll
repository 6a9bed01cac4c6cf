; The thread pool of a library.

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join($LONG, ptr)
declare ptr @worker(ptr)
declare void @stop(ptr)
declare i1 @borrow(ptr)
declare void @give_back(ptr)
declare i32 @sched_yield()
declare void @prepare(ptr)

@pool = internal global [128 x i64] zeroinitializer, align 64
@workers = internal global [255 x %Worker] zeroinitializer
@handles = internal global [255 x $LONG] zeroinitializer
; The number of started threads; guarded by the reservation of the pool.
@started = internal global i32 0
; The number of threads available for runs.
@running = internal global i32 0

; Return the pool; null without threads.
define internal ptr @helpers() #0 {
  %count = load atomic i32, ptr @running acquire, align 4
  %some = icmp ne i32 %count, 0
  %pool = select i1 %some, ptr @pool, ptr null
  ret ptr %pool
}

; Reserve the pool after the current run; other runs continue without threads meanwhile.
define internal void @seize() #0 {
entry:
  br label %try
try:
  ; Another caller can have started threads in the meantime.
  store atomic i32 0, ptr @running release, align 4
  %got = call i1 @borrow(ptr @pool)
  br i1 %got, label %end, label %wait
wait:
  %yielded = call i32 @sched_yield()
  br label %try
end:
  ret void
}

; End the threads of a reserved pool.
define internal void @quit() #0 {
entry:
  %count = load i32, ptr @started
  store i32 0, ptr @started
  %some = icmp ne i32 %count, 0
  br i1 %some, label %quit, label %end
quit:
  call void @stop(ptr @pool)
  br label %next
next:
  %k = phi i32 [ 0, %quit ], [ %k.next, %next ]
  %handle.at = getelementptr $LONG, ptr @handles, i32 %k
  %handle = load $LONG, ptr %handle.at
  %joined = call i32 @pthread_join($LONG %handle, ptr null)
  %k.next = add i32 %k, 1
  %more = icmp slt i32 %k.next, %count
  br i1 %more, label %next, label %end
end:
  ret void
}

define i32 @${PREFIX}_threads(i32 %count, i32 %spins) #1 {
entry:
  %bad = icmp slt i32 %count, 1
  br i1 %bad, label %refuse, label %begin
refuse:
  ret i32 1
begin:
  call void @seize()
  call void @quit()
  %usual = icmp slt i32 %spins, 0
  %chosen = select i1 %usual, i32 $SPINS, i32 %spins
  %chosen.long = sext i32 %chosen to i64
  store i64 %chosen.long, ptr @spins
  %helpers = sub i32 %count, 1
  %many = icmp sgt i32 %helpers, 255
  br i1 %many, label %fewer, label %clear
clear:
  %c = phi i64 [ 0, %begin ], [ %c.next, %cleared ]
  ; The pool stays reserved.
  %used.at = getelementptr %Pool, ptr @pool, i32 0, i32 8
  %word.at = getelementptr i64, ptr @pool, i64 %c
  %keeps = icmp eq ptr %word.at, %used.at
  br i1 %keeps, label %cleared, label %zero
zero:
  store i64 0, ptr %word.at
  br label %cleared
cleared:
  %c.next = add i64 %c, 1
  %c.more = icmp slt i64 %c.next, 128
  br i1 %c.more, label %clear, label %cleared.all
cleared.all:
  call void @prepare(ptr @pool)
  br label %next
next:
  %k = phi i32 [ 0, %cleared.all ], [ %k.next, %start.done ]
  %more = icmp slt i32 %k, %helpers
  br i1 %more, label %start, label %all
start:
  %worker.at = getelementptr %Worker, ptr @workers, i32 %k
  %pool.number = ptrtoint ptr @pool to i64
  store i64 %pool.number, ptr %worker.at
  %k.next = add i32 %k, 1
  %number = zext i32 %k.next to i64
  %number.at = getelementptr %Worker, ptr %worker.at, i32 0, i32 1
  store i64 %number, ptr %number.at
  %handle.at = getelementptr $LONG, ptr @handles, i32 %k
  %problem = call i32 @pthread_create(ptr %handle.at, ptr null, ptr @worker, ptr %worker.at)
  %fine = icmp eq i32 %problem, 0
  br i1 %fine, label %start.done, label %fewer
start.done:
  store i32 %k.next, ptr @started
  br label %next
fewer:
  call void @quit()
  br label %end
all:
  store atomic i32 %helpers, ptr @running release, align 4
  br label %end
end:
  %status = phi i32 [ 0, %all ], [ 6, %fewer ]
  call void @give_back(ptr @pool)
  ret i32 %status
}

define void @${PREFIX}_stop() #1 {
  call void @seize()
  call void @quit()
  call void @give_back(ptr @pool)
  ret void
}

attributes #0 = { nounwind }
